package h2

import (
	"context"
	"io"
	"net/http"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"
	"golang.org/x/net/http2/hpack"
)

// newStream makes a request of the list of header fields that has come; nil when it is malformed.
// RFC 9113, "HTTP Control Data".
func (c *conn) newStream(id uint32) *stream {
	b := &c.block
	s := &stream{conn: c, id: id, handler: c.handler, declared: -1}
	s.answer.stream = s
	r := &http.Request{
		Proto: "HTTP/2.0", ProtoMajor: 2, RemoteAddr: c.remote, TLS: c.tls,
		Method: b.get(":method"), RequestURI: b.get(":path"), Host: b.get(":authority"),
		Header: c.fields(b.fields[b.pseudo:]), Body: http.NoBody,
	}
	if b.truncated {
		s.handler, r.URL = http.HandlerFunc(tooLarge), &url.URL{}
		delete(r.Header, "Content-Length") // of several one may be left
	} else if !control(r, b.get(":scheme")) {
		return nil
	}
	if !s.setBody(r, b.last) {
		return nil
	}
	s.ctx, s.cancel = context.WithCancel(c.ctx)
	s.request = r.WithContext(s.ctx)
	s.answer.begin(r.Method)
	return s
}

// fields are header fields as net/http has them.
func (c *conn) fields(list []hpack.HeaderField) http.Header {
	h := make(http.Header, len(list))
	values := make([]string, len(list)) // of most, one each
	for i, f := range list {
		name := c.canonical(f.Name)
		if has := h[name]; has != nil {
			h[name] = append(has, f.Value)
			continue
		}
		values[i] = f.Value
		h[name] = values[i : i+1 : i+1]
	}
	if cookies := h["Cookie"]; len(cookies) > 1 {
		h["Cookie"] = []string{strings.Join(cookies, "; ")}
	}
	return h
}

// control checks the parts of a request that say what it is for, and takes its address apart.
func control(r *http.Request, scheme string) bool {
	host := r.Header["Host"]
	switch {
	case len(host) > 1, len(host) == 1 && r.Host != "" && r.Host != host[0]:
		return false
	case len(host) == 1:
		r.Host = host[0]
		delete(r.Header, "Host")
	}
	if strings.Contains(r.Host, "@") || r.Host != "" && !httpguts.ValidHostHeader(r.Host) {
		return false
	}
	if r.Method == http.MethodConnect {
		if r.RequestURI != "" || scheme != "" || r.Host == "" {
			return false
		}
		r.URL, r.RequestURI = &url.URL{Host: r.Host}, r.Host
		return true
	}
	if !validMethod(r.Method) || scheme != "https" && scheme != "http" {
		return false
	}
	if !strings.HasPrefix(r.RequestURI, "/") && r.RequestURI != "*" {
		return false
	}
	u, err := url.ParseRequestURI(r.RequestURI)
	r.URL = u
	return err == nil
}

// validMethod tells tokens.
func validMethod(method string) bool {
	return method != "" && !strings.ContainsFunc(method, func(r rune) bool { return !httpguts.IsTokenRune(r) })
}

// setBody gives a request its body; false when what is declared of it is malformed.
func (s *stream) setBody(r *http.Request, end bool) bool {
	if lengths := r.Header["Content-Length"]; len(lengths) > 0 {
		n, err := strconv.ParseUint(lengths[0], 10, 63)
		if len(lengths) > 1 || err != nil || end && n != 0 {
			return false
		}
		s.declared = int64(n)
	}
	expect := r.Header["Expect"]
	want100 := httpguts.HeaderValuesContainsToken(expect[:min(len(expect), 1)], "100-continue")
	if want100 {
		delete(r.Header, "Expect")
	}
	r.Trailer = declared(r.Header["Trailer"])
	delete(r.Header, "Trailer")
	if s.got = end; end {
		return true
	}
	r.ContentLength = s.declared
	s.body = newBody(s)
	s.body.want100 = want100
	r.Body = s.body
	if r.Trailer != nil {
		trailer := r.Trailer
		s.body.eof = func() {
			for name, values := range s.trailer {
				trailer[name] = values
			}
		}
	}
	return true
}

// mostDeclared are the bytes of trailers' names that are read. A long list takes few bytes that come, as
// a field that was sent once may come again and again.
const mostDeclared = 4 << 10

// declared are the trailers that a request says that it will have.
func declared(lists []string) http.Header {
	var h http.Header
	left := mostDeclared
	for _, list := range lists {
		if left -= len(list); left < 0 {
			break
		}
		for name := range strings.SplitSeq(list, ",") {
			switch name = http.CanonicalHeaderKey(textproto.TrimString(name)); name {
			case "Transfer-Encoding", "Trailer", "Content-Length", "":
			default:
				if h == nil {
					h = http.Header{}
				}
				h[name] = nil
			}
		}
	}
	return h
}

// tooLarge answers requests with more header fields than are read.
func tooLarge(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(http.StatusRequestHeaderFieldsTooLarge)
	_, _ = io.WriteString(w, "431 Request Header Fields Too Large\n") // or the client is gone
}
