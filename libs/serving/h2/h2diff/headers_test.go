package h2diff_test

import (
	"fmt"
	"strings"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// requestFields returns the usual header fields except one, and more fields.
func requestFields(but string, more ...string) (fields []string) {
	for _, f := range []string{":method: GET", ":scheme: http", ":authority: example.com", ":path: /hello"} {
		if but == "" || !strings.HasPrefix(f, but) {
			fields = append(fields, f)
		}
	}
	return append(fields, more...)
}

// requests are valid and invalid lists of header fields.
var requests = map[string][]string{
	"plain":                     requestFields(""),
	"no method":                 requestFields(":method"),
	"no scheme":                 requestFields(":scheme"),
	"no path":                   requestFields(":path"),
	"no authority":              requestFields(":authority"),
	"no authority, host":        requestFields(":authority", "host: other.example.com"),
	"nothing":                   nil,
	"host as the authority":     requestFields("", "host: example.com"),
	"host unlike the authority": requestFields("", "host: other.example.com"),
	"two hosts":                 requestFields(":authority", "host: a", "host: a"),
	"authority with a user":     requestFields(":authority", ":authority: user@example.com"),
	"authority with a space":    requestFields(":authority", ":authority: exa mple.com"),
	"authority with a port":     requestFields(":authority", ":authority: example.com:443"),
	"empty authority":           requestFields(":authority", ":authority: "),
	"empty method":              requestFields(":method", ":method: "),
	"method with a space":       requestFields(":method", ":method: G ET"),
	"unknown method":            requestFields(":method", ":method: PURGE"),
	"lower-case method":         requestFields(":method", ":method: get"),
	"https":                     requestFields(":scheme", ":scheme: https"),
	"unknown scheme":            requestFields(":scheme", ":scheme: ftp"),
	"empty scheme":              requestFields(":scheme", ":scheme: "),
	"empty path":                requestFields(":path", ":path: "),
	"path without a slash":      requestFields(":path", ":path: hello"),
	"path of a URL":             requestFields(":path", ":path: http://example.com/hello"),
	"path with two slashes":     requestFields(":path", ":path: //hello"),
	"path with a space":         requestFields(":path", ":path: /hel lo"),
	"path with an escape":       requestFields(":path", ":path: /hello/%2F%20"),
	"path with a bad escape":    requestFields(":path", ":path: /hello/%zz"),
	"path with a query":         requestFields(":path", ":path: /hello?a=b&c=%"),
	"path with a fragment":      requestFields(":path", ":path: /hello#x"),
	"path with a control":       requestFields(":path", ":path: /hello\x01"),
	"path with UTF-8":           requestFields(":path", ":path: /hello/ä"),
	"asterisk":                  requestFields(":path", ":path: *"),
	"asterisk with OPTIONS":     {":method: OPTIONS", ":scheme: http", ":authority: example.com", ":path: *"},
	"CONNECT":                   {":method: CONNECT", ":authority: example.com:443"},
	"CONNECT with a path":       {":method: CONNECT", ":scheme: http", ":authority: example.com:443", ":path: /hello"},
	"CONNECT without authority": {":method: CONNECT"},
	"CONNECT with a protocol": {":method: CONNECT", ":protocol: websocket", ":scheme: http",
		":authority: example.com", ":path: /hello"},
	"method twice":               requestFields("", ":method: GET"),
	"path twice":                 requestFields("", ":path: /hello"),
	"authority twice":            requestFields("", ":authority: example.com"),
	"unknown pseudo-field":       requestFields("", ":unknown: 1"),
	"pseudo-field of responses":  requestFields("", ":status: 200"),
	"pseudo-field after others":  append([]string{"a: b"}, requestFields("")...),
	"empty name":                 requestFields("", ":: 1"),
	"upper-case name":            requestFields("", "X-Upper: 1"),
	"name with a space":          requestFields("", "x name: 1"),
	"name with UTF-8":            requestFields("", "x-ä: 1"),
	"value with a line":          requestFields("", "x-value: a\nb"),
	"value with a NUL":           requestFields("", "x-value: a\x00b"),
	"value with UTF-8":           requestFields("", "x-value: ä"),
	"value with a space at ends": requestFields("", "x-value:   a  "),
	"connection":                 requestFields("", "connection: keep-alive"),
	"keep-alive":                 requestFields("", "keep-alive: 1"),
	"proxy-connection":           requestFields("", "proxy-connection: keep-alive"),
	"transfer-encoding":          requestFields("", "transfer-encoding: chunked"),
	"upgrade":                    requestFields("", "upgrade: h2c"),
	"te of trailers":             requestFields("", "te: trailers"),
	"te of gzip":                 requestFields("", "te: gzip"),
	"te of both":                 requestFields("", "te: trailers, gzip"),
	"cookies":                    requestFields("", "cookie: a=b", "cookie: c=d"),
	"a field twice":              requestFields("", "x-twice: 1", "x-other: 2", "x-twice: 3"),
	"length of zero":             requestFields("", "content-length: 0"),
	"length without a body":      requestFields("", "content-length: 5"),
	"length that is negative":    requestFields("", "content-length: -1"),
	"length with a sign":         requestFields("", "content-length: +0"),
	"length of letters":          requestFields("", "content-length: x"),
	"length that is empty":       requestFields("", "content-length: "),
	"two lengths":                requestFields("", "content-length: 0", "content-length: 0"),
	"expect":                     requestFields("", "expect: 100-continue"),
	"declared trailers":          requestFields("", "trailer: X-A, x-b"),
	"declared trailers, wrong":   requestFields("", "trailer: Content-Length, , Transfer-Encoding"),
	"priority field":             requestFields("", "priority: u=1, i"),
	"large, within the limit":    requestFields("", "x-large: "+strings.Repeat("x", maxHeaderBytes-200)),
	"large, beyond the limit": requestFields("", "x-large: "+strings.Repeat("x", maxHeaderBytes/2),
		"x-more: "+strings.Repeat("x", maxHeaderBytes/2+200)),
	"one field beyond the limit": requestFields("", "x-large: "+strings.Repeat("x", maxHeaderBytes+1000)),
}

// bodyCase is a request body: the declared length, its parts and its end.
type bodyCase struct {
	name     string
	fields   []string
	parts    []string
	trailers []string // end the body, if there are some
}

var bodies = []bodyCase{
	{name: "undeclared", parts: []string{"abc", "de"}},
	{name: "undeclared, empty", parts: []string{""}},
	{name: "declared", fields: []string{"content-length: 5"}, parts: []string{"abc", "de"}},
	{name: "too short", fields: []string{"content-length: 9"}, parts: []string{"abc", "de"}},
	{name: "too long", fields: []string{"content-length: 4"}, parts: []string{"abc", "de"}},
	{name: "too long at once", fields: []string{"content-length: 2"}, parts: []string{"abc"}},
	{name: "not empty, declared so", fields: []string{"content-length: 0"}, parts: []string{"a"}},
	{name: "empty, declared so", fields: []string{"content-length: 0"}, parts: []string{""}},
	{name: "bad length", fields: []string{"content-length: x"}, parts: []string{"a"}},
	{name: "two lengths", fields: []string{"content-length: 1", "content-length: 1"}, parts: []string{"a"}},
	{name: "expected", fields: []string{"expect: 100-continue"}, parts: []string{"abc"}},
	{name: "expected, declared", fields: []string{"expect: 100-continue", "content-length: 3"}, parts: []string{"abc"}},
	{name: "trailers", fields: []string{"trailer: X-A"}, parts: []string{"abc"}, trailers: []string{"x-a: 1"}},
	{name: "trailers that are not declared", parts: []string{"abc"}, trailers: []string{"x-a: 1"}},
	{name: "trailers of both kinds", fields: []string{"trailer: X-A, X-B"}, parts: []string{"abc"},
		trailers: []string{"x-a: 1", "x-a: 2", "x-c: 3"}},
	{name: "trailers that are forbidden", fields: []string{"trailer: Host, X-A"}, parts: []string{"abc"},
		trailers: []string{"host: a", "x-a: 1"}},
	{
		name:     "trailers after a short body",
		fields:   []string{"content-length: 9"},
		parts:    []string{"abc"},
		trailers: []string{"x-a: 1"},
	},
	{name: "trailers with pseudo-fields", parts: []string{"abc"}, trailers: []string{":path: /"}},
	{name: "trailers with upper-case", parts: []string{"abc"}, trailers: []string{"X-A: 1"}},
}

// headerScripts send requests with each list of header fields.
func headerScripts() (scripts []script) {
	for name, fields := range requests {
		for _, end := range []bool{true, false} {
			scripts = append(scripts, script{fmt.Sprintf("request/%s, end %t", name, end), func(c *client) {
				c.greet()
				c.ledger.open(1)
				block := c.fields(fields...)
				first := block[:min(len(block), 16<<10)]
				c.requireNoError(c.framer.WriteHeaders(http2.HeadersFrameParam{
					StreamID:      1,
					BlockFragment: first,
					EndHeaders:    len(first) == len(block),
					EndStream:     end,
				}))
				if remaining := block[len(first):]; len(remaining) > 0 {
					c.requireNoError(c.framer.WriteContinuation(1, true, remaining))
				}
				c.probe(3)
			}})
		}
	}
	for _, bodyCase := range bodies {
		for _, handler := range []string{"/read", "/hello", "/echo", "/some?n=2", "/close"} {
			scripts = append(scripts, script{"body/" + bodyCase.name + " for " + handler, func(c *client) {
				c.greet()
				c.request(1, "POST", handler, false, bodyCase.fields...)
				c.settle()
				for i, p := range bodyCase.parts {
					c.data(1, i == len(bodyCase.parts)-1 && bodyCase.trailers == nil, []byte(p))
					c.settle()
				}
				if bodyCase.trailers != nil {
					c.headers(1, true, bodyCase.trailers...)
				}
				c.probe(3)
			}})
		}
	}
	return append(scripts, blockScripts()...)
}

// blockScripts send header blocks in unusual ways.
func blockScripts() (scripts []script) {
	add := func(name string, run func(*client)) {
		scripts = append(scripts, script{"block/" + name, func(c *client) {
			c.greet()
			c.ledger.open(1)
			run(c)
			c.probe(1001)
		}})
	}
	const endHeaders, endStream = http2.FlagHeadersEndHeaders, http2.FlagHeadersEndStream
	usual := requestFields("", "x-more: value")
	add("in frames of a byte", func(c *client) {
		block := c.fields(usual...)
		c.raw(http2.FrameHeaders, endStream, 1, block[:1]...)
		for i := 1; i < len(block); i++ {
			c.requireNoError(c.framer.WriteContinuation(1, i == len(block)-1, block[i:i+1]))
		}
	})
	add("with empty continuations", func(c *client) {
		c.raw(http2.FrameHeaders, endStream, 1, c.fields(usual...)...)
		c.requireNoError(c.framer.WriteContinuation(1, false, nil))
		c.requireNoError(c.framer.WriteContinuation(1, true, nil))
	})
	add("padded, with a priority", func(c *client) {
		c.requireNoError(c.framer.WriteHeaders(http2.HeadersFrameParam{
			StreamID:      1,
			BlockFragment: c.fields(usual...),
			EndHeaders:    true,
			EndStream:     true,
			PadLength:     200,
			Priority:      http2.PriorityParam{StreamDep: 7, Weight: 9},
		}))
	})
	for name, f := range map[string]func(c *client){
		"PING":                     func(c *client) { c.ping(7) },
		"HEADERS of the stream":    func(c *client) { c.headers(1, true, "a: b") },
		"HEADERS of another":       func(c *client) { c.request(5, "GET", "/hello", true) },
		"CONTINUATION of another":  func(c *client) { c.requireNoError(c.framer.WriteContinuation(5, true, nil)) },
		"DATA":                     func(c *client) { c.data(1, false, []byte("x")) },
		"an unknown frame":         func(c *client) { c.raw(0x42, 0, 0, 1) },
		"CONTINUATION on stream 0": func(c *client) { c.requireNoError(c.framer.WriteContinuation(0, true, nil)) },
	} {
		add("interrupted by "+name, func(c *client) {
			c.raw(http2.FrameHeaders, endStream, 1, c.fields(usual...)...)
			f(c)
		})
	}
	for name, data := range map[string][]byte{
		"index of zero":                 {0x80},
		"index beyond the table":        {0xff, 0x00},
		"field that is cut":             {0x40, 0x05, 'x'},
		"number without an end":         {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
		"table larger than allowed":     {0x3f, 0xe2, 0x1f},
		"table size after a field":      {0x82, 0x20},
		"bad Huffman code":              {0x00, 0x81, 0xff, 0x81, 0xff},
		"Huffman code with end symbol":  {0x40, 0x01, 'a', 0x84, 0xff, 0xff, 0xff, 0xff},
		"table of nothing":              {0x20, 0x82, 0x86, 0x84, 0x41, 0x01, 'a'},
		"table of nothing and back":     {0x20, 0x3f, 0xe1, 0x1f, 0x82, 0x86, 0x84, 0x41, 0x01, 'a'},
		"fields that are never indexed": {0x82, 0x86, 0x84, 0x41, 0x01, 'a', 0x10, 0x01, 'a', 0x01, 'b'},
		"name that is empty":            {0x82, 0x86, 0x84, 0x41, 0x01, 'a', 0x00, 0x00, 0x01, 'b'},
	} {
		add("HPACK, "+name, func(c *client) { c.raw(http2.FrameHeaders, endHeaders|endStream, 1, data...) })
	}
	add("HPACK, many fields of a byte", func(c *client) {
		block := c.fields(append(usual, "x-many: "+strings.Repeat("x", 100))...)
		c.hpack = hpack.NewEncoder(&c.block)
		c.raw(http2.FrameHeaders, endHeaders|endStream, 1, append(block, []byte(strings.Repeat("\xbe", 3000))...)...)
	})
	add("trailers twice", func(c *client) {
		c.request(1, "POST", "/read", false)
		c.headers(1, true, "a: b")
		c.settle()
		c.headers(1, true, "a: b")
	})
	for _, later := range []uint32{0, 300} { // streams
		add(fmt.Sprintf("trailers of a stream that was reset %d streams before", later), func(c *client) {
			c.request(1, "POST", "/read", false)
			c.settle()
			c.window(1, 0)
			c.settle()
			for i := range later {
				c.request(5+2*i, "GET", "/empty", true)
				c.settle()
			}
			c.headers(1, true, "a: b")
			c.settle()
			c.request(5+2*later, "GET", "/hello", true)
		})
	}
	return scripts
}
