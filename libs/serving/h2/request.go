package h2

import (
	"context"
	"errors"
	"io"
	"maps"
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
	b := &c.headers
	s := &stream{conn: c, id: id, handler: c.handler, declaredLength: -1}
	s.response.stream = s
	r := &http.Request{
		Proto:      "HTTP/2.0",
		ProtoMajor: 2,
		RemoteAddr: c.remote,
		TLS:        c.tls,
		Method:     b.pseudoValue(":method"),
		RequestURI: b.pseudoValue(":path"),
		Host:       b.pseudoValue(":authority"),
		Header:     c.headerMap(b.fields[b.pseudoCount:]),
		Body:       http.NoBody,
	}
	if b.truncated {
		s.handler = http.HandlerFunc(serveHeaderTooLarge)
		r.URL = &url.URL{}
		delete(r.Header, "Content-Length") // truncation may have dropped a second, conflicting value
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
func (c *conn) headerMap(fields []hpack.HeaderField) http.Header {
	header := make(http.Header, len(fields))
	values := make([]string, len(fields)) // one array for the first value of each field
	for i, headerField := range fields {
		name := c.canonicalName(headerField.Name)
		if earlier := header[name]; earlier != nil {
			header[name] = append(earlier, headerField.Value)
			continue
		}
		values[i] = headerField.Value
		header[name] = values[i : i+1 : i+1]
	}
	if cookies := header["Cookie"]; len(cookies) > 1 {
		header["Cookie"] = []string{strings.Join(cookies, "; ")}
	}
	return header
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
		r.URL = &url.URL{Host: r.Host}
		r.RequestURI = r.Host
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

func validMethod(method string) bool {
	return method != "" && !strings.ContainsFunc(method, func(r rune) bool { return !httpguts.IsTokenRune(r) })
}

// setBody sets the body of a request. ended means that the request has no body, because its header
// block ends the stream. It returns false if the declared length is malformed.
func (s *stream) setBody(r *http.Request, ended bool) bool {
	if lengths := r.Header["Content-Length"]; len(lengths) > 0 {
		n, err := strconv.ParseUint(lengths[0], 10, 63)
		if len(lengths) > 1 || err != nil || ended && n != 0 {
			return false
		}
		s.declaredLength = int64(n)
	}
	expect := r.Header["Expect"]
	want100 := httpguts.HeaderValuesContainsToken(expect[:min(len(expect), 1)], "100-continue")
	if want100 {
		delete(r.Header, "Expect")
	}
	r.Trailer = declaredTrailers(r.Header["Trailer"])
	delete(r.Header, "Trailer")
	s.requestEnded = ended
	if ended {
		return true
	}
	r.ContentLength = s.declaredLength
	s.body = newBody(s)
	s.body.want100 = want100
	r.Body = s.body
	if r.Trailer != nil {
		trailer := r.Trailer
		s.body.beforeEOF = func() { maps.Copy(trailer, s.receivedTrailer) }
	}
	return true
}

// maxTrailerNames limits the bytes of declared trailer names. An indexed field can repeat a long
// list at the cost of one byte.
const maxTrailerNames = 4 << 10

// declaredTrailers returns the trailers that a request declares.
func declaredTrailers(lists []string) http.Header {
	var header http.Header
	remaining := maxTrailerNames
	for _, list := range lists {
		remaining -= len(list)
		if remaining < 0 {
			break
		}
		for name := range strings.SplitSeq(list, ",") {
			name = http.CanonicalHeaderKey(textproto.TrimString(name))
			switch name {
			case "Transfer-Encoding", "Trailer", "Content-Length", "":
			default:
				if header == nil {
					header = http.Header{}
				}
				header[name] = nil
			}
		}
	}
	return header
}

// serveHeaderTooLarge responds to requests with too large a header section.
func serveHeaderTooLarge(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(http.StatusRequestHeaderFieldsTooLarge)
	_, _ = io.WriteString(w, "431 Request Header Fields Too Large\n") // fails if the client is gone
}

// decodeChunk is the number of bytes of a header block that the decoder gets at a time, unless a
// field is larger.
const decodeChunk = 512

// decode decodes a fragment of a header block. It passes only complete fields to the decoder and
// keeps the rest in partial, because the decoder would keep a buffer for a partial field until the
// connection closes.
func (b *headerBlock) decode(data []byte) error {
	if len(b.partial) > 0 {
		b.partial = append(b.partial, data...)
		data = b.partial
	}
	for n := 1; ; n++ {
		size := b.completeFields(data)
		if size == 0 && n == 1 && len(b.partial) > 0 {
			return nil // only a partial field is buffered, and a large field may arrive in many fragments
		}
		if size == 0 {
			break
		}
		if _, err := b.decoder.Write(data[:size]); err != nil {
			return err
		}
		data = data[size:]
	}
	b.partial = append(b.partial[:0], data...)
	return nil
}

// errTruncatedField reports a header block that ends inside a field.
var errTruncatedField = errors.New("unterminated header field")

// finish checks that the header block ends with a complete field.
func (b *headerBlock) finish() error {
	if len(b.partial) > 0 {
		return errTruncatedField
	}
	return b.decoder.Close()
}

// reset releases the memory of a closed header block, because its bytes are no longer reserved and
// the connection may be idle for long.
func (b *headerBlock) reset() {
	clear(b.fields)
	b.fields = b.fields[:0]
	if cap(b.fields) > maxCachedNames {
		b.fields = nil
	}
	if b.partial == nil && b.encodedBytes <= decodeChunk {
		return
	}
	b.partial = nil
	// The decoder keeps the last buffer that it got, so it gets a small one.
	b.decoder.SetEmitEnabled(false)
	_, _ = b.decoder.Write([]byte{0x82}) // indexed field 2 of the static table, ":method: GET"; not emitted
	_ = b.decoder.Close()
}

// completeFields returns the size of the complete fields at the start of p, up to about decodeChunk
// bytes. Invalid input counts as complete, so that the decoder returns the error.
func (b *headerBlock) completeFields(p []byte) int {
	size := 0
	for size < len(p) && size < decodeChunk {
		n := b.fieldLength(p[size:])
		if n == 0 {
			break
		}
		size += n
	}
	return size
}

// fieldLength returns the size of the first field or table size update, or 0 if it is incomplete
// (RFC 7541, "Binary Format").
func (b *headerBlock) fieldLength(data []byte) int {
	// The first byte is 1iiiiiii (indexed field), 01iiiiii (literal field, added to the table),
	// 001iiiii (table size update) or 000xiiii (literal field, not added). The i are the prefix of
	// an integer. In a literal field it is the index of the name, or 0 if the name follows as a
	// string. A string is an integer with a prefix of 7 bits, its length, and the bytes.
	bits := 4        // of the prefix of the first integer
	stringCount := 1 // number of strings that follow it
	switch {
	case data[0]&0x80 != 0: // indexed field
		bits = 7
		stringCount = 0
	case data[0]&0x40 != 0: // literal field with incremental indexing
		bits = 6
	case data[0]&0x20 != 0: // table size update
		bits = 5
		stringCount = 0
	}
	name, size := decodeInt(data, bits)
	if name == 0 && stringCount > 0 {
		stringCount = 2 // a literal name precedes the value
	}
	for ; size > 0 && stringCount > 0; stringCount-- {
		length, n := decodeInt(data[size:], 7)
		switch {
		case n == 0:
			return 0
		case n < 0, length > uint64(b.limit):
			return len(data)
		case uint64(len(data)-size-n) < length:
			return 0
		}
		size += n + int(length)
	}
	if size < 0 {
		return len(data)
	}
	return size
}

// decodeInt decodes an integer whose prefix is the last bits of the first byte (RFC 7541, "Integer
// Representation"). n is the encoded size in bytes, 0 if the integer is incomplete, or negative if
// it is too long.
func decodeInt(data []byte, bits int) (value uint64, prefix int) {
	if len(data) == 0 {
		return 0, 0
	}
	prefixMax := uint64(1)<<bits - 1
	value = uint64(data[0]) & prefixMax
	if value < prefixMax {
		return value, 1
	}
	for prefix = 1; prefix < len(data); prefix++ {
		if prefix > maxIntBytes {
			return 0, -1
		}
		value += uint64(data[prefix]&0x7f) << (7 * (prefix - 1))
		if data[prefix]&0x80 == 0 {
			return value, prefix + 1
		}
	}
	return 0, 0
}

// maxIntBytes is the number of bytes that may follow the prefix of an integer.
const maxIntBytes = 9

func appendFields(fields []hpack.HeaderField, name string, values []string) []hpack.HeaderField {
	lower := lowerName(name)
	if !httpguts.ValidHeaderFieldName(lower) {
		return fields
	}
	for _, v := range values {
		if httpguts.ValidHeaderFieldValue(v) {
			// A unique value would only displace others in the client's HPACK table.
			fields = append(fields, hpack.HeaderField{Name: lower, Value: v, Sensitive: lower == "audit-id"})
		}
	}
	return fields
}

// lowerName returns a name in lower case. It allocates nothing for common names.
func lowerName(name string) string {
	switch name {
	case "Audit-Id":
		return "audit-id"
	case "Cache-Control":
		return "cache-control"
	case "Content-Encoding":
		return "content-encoding"
	case "Content-Type":
		return "content-type"
	case "Date":
		return "date"
	case "Vary":
		return "vary"
	case "Warning":
		return "warning"
	case "X-Kubernetes-Pf-Flowschema-Uid":
		return "x-kubernetes-pf-flowschema-uid"
	case "X-Kubernetes-Pf-Prioritylevel-Uid":
		return "x-kubernetes-pf-prioritylevel-uid"
	}
	return strings.ToLower(name)
}
