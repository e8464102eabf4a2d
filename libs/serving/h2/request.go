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

// newStream creates a stream with the request of the current header block. It returns nil if the
// request is malformed (RFC 9113, "HTTP Control Data").
func (c *conn) newStream(id uint32) *stream {
	b := &c.block
	s := &stream{conn: c, id: id, handler: c.handler, declared: -1}
	s.response.stream = s
	r := &http.Request{
		Proto: "HTTP/2.0", ProtoMajor: 2, RemoteAddr: c.remote, TLS: c.tls,
		Method: b.pseudoValue(":method"), RequestURI: b.pseudoValue(":path"), Host: b.pseudoValue(":authority"),
		Header: c.headerMap(b.fields[b.pseudo:]), Body: http.NoBody,
	}
	if b.truncated {
		s.handler, r.URL = http.HandlerFunc(serveHeaderTooLarge), &url.URL{}
		delete(r.Header, "Content-Length") // one of several may be left
	} else if !setTarget(r, b.pseudoValue(":scheme")) {
		return nil
	}
	if !s.setBody(r, b.endStream) {
		return nil
	}
	s.ctx, s.cancel = context.WithCancel(c.ctx)
	s.request = r.WithContext(s.ctx)
	s.response.init(r.Method)
	return s
}

// headerMap returns the fields as an http.Header.
func (c *conn) headerMap(list []hpack.HeaderField) http.Header {
	h := make(http.Header, len(list))
	values := make([]string, len(list)) // one array for the first value of each field
	for i, f := range list {
		name := c.canonicalName(f.Name)
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

// setTarget validates the pseudo-fields and the host of a request, and sets its URL and Host.
func setTarget(r *http.Request, scheme string) bool {
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

// validMethod reports whether method is a token.
func validMethod(method string) bool {
	return method != "" && !strings.ContainsFunc(method, func(r rune) bool { return !httpguts.IsTokenRune(r) })
}

// setBody sets the body of a request. It returns false if the declared length is malformed.
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
	r.Trailer = declaredTrailers(r.Header["Trailer"])
	delete(r.Header, "Trailer")
	if s.requestEnded = end; end {
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

// maxTrailerNames limits the bytes of declared trailer names. An indexed field can repeat a long
// list at the cost of one byte.
const maxTrailerNames = 4 << 10

// declaredTrailers returns the trailers that a request declares.
func declaredTrailers(lists []string) http.Header {
	var h http.Header
	left := maxTrailerNames
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

// serveHeaderTooLarge responds to requests with too large a header section.
func serveHeaderTooLarge(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(http.StatusRequestHeaderFieldsTooLarge)
	_, _ = io.WriteString(w, "431 Request Header Fields Too Large\n") // fails if the client is gone
}
