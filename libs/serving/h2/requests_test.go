package h2_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// seen is what a handler sees of a request.
func seen(r *http.Request) string {
	body, err := io.ReadAll(r.Body)
	return fmt.Sprintf("%s %s %s|%s|%q|%v|%d %q %v|%v", r.Method, r.RequestURI, r.URL.Path, r.URL.Host, r.Host, r.Header, r.ContentLength, body, err, r.Trailer)
}

// dialSeeing connects to a server whose handler tells what it sees.
func dialSeeing(t *testing.T) (*unread, chan string) {
	t.Helper()
	saw := make(chan string, 10)
	return dialUnread(t, func(_ http.ResponseWriter, r *http.Request) { saw <- seen(r) }), saw
}

// fields are written as "name: value".
func fields(lines ...string) (list []hpack.HeaderField) {
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		list = append(list, hpack.HeaderField{Name: name, Value: value})
	}
	return list
}

// asking are the fields that a request needs, and others.
func asking(more ...string) []hpack.HeaderField {
	return fields(append([]string{":method: GET", ":scheme: https", ":authority: a", ":path: /"}, more...)...)
}

const (
	endsStream  = http2.FlagHeadersEndStream
	endsHeaders = http2.FlagHeadersEndHeaders
	padded      = http2.FlagHeadersPadded
	withOrder   = http2.FlagHeadersPriority
)

// ask sends a list of fields as it is.
func (c *unread) ask(id uint32, flags http2.Flags, list []hpack.HeaderField) {
	c.t.Helper()
	c.must(c.WriteRawFrame(http2.FrameHeaders, flags|endsHeaders, id, c.packed(list)))
}

func (c *unread) packed(list []hpack.HeaderField) []byte {
	c.t.Helper()
	c.block.Reset()
	for _, f := range list {
		c.must(c.hpack.WriteField(f))
	}
	return c.block.Bytes()
}

// hears reads until the server says what becomes of what it was sent.
func (c *unread) hears() string {
	c.t.Helper()
	for {
		f, err := c.ReadFrame()
		if err != nil {
			return err.Error()
		}
		switch f := f.(type) {
		case *http2.MetaHeadersFrame:
			return f.PseudoValue("status")
		case *http2.RSTStreamFrame:
			return fmt.Sprint("reset ", f.StreamID, " ", f.ErrCode)
		case *http2.GoAwayFrame:
			return fmt.Sprint("away ", f.ErrCode)
		case *http2.PingFrame:
			return fmt.Sprint("ping ", f.Data[0])
		}
	}
}

// until reads until the client hears something, and not that the connection ends.
func (c *unread) until(want string) {
	c.t.Helper()
	for {
		switch got := c.hears(); {
		case got == want:
			return
		case strings.HasPrefix(got, "away") && got != "away NO_ERROR", got == io.EOF.Error(), got == io.ErrClosedPipe.Error():
			c.t.Fatalf("the client hears %s, not %s", got, want)
		}
	}
}

// lives tells whether the connection goes on.
func (c *unread) lives() {
	c.t.Helper()
	c.must(c.WritePing(false, [8]byte{77}))
	if got := c.hears(); got != "ping 77" {
		c.t.Errorf("then the client hears %s", got)
	}
}

// TestMalformedRequests are nobody's, and end their own stream alone.
func TestMalformedRequests(t *testing.T) {
	without := func(name string, more ...string) (list []hpack.HeaderField) {
		for _, f := range asking() {
			if f.Name != name {
				list = append(list, f)
			}
		}
		return append(list, fields(more...)...)
	}
	for name, list := range map[string][]hpack.HeaderField{
		"no method":             without(":method"),
		"a method of two words": without(":method", ":method: G T"),
		"no scheme":             without(":scheme"),
		"another scheme":        without(":scheme", ":scheme: ftp"),
		"no path":               without(":path"),
		"a path of no root":     without(":path", ":path: a"),
		"a whole address":       without(":path", ":path: https://b/"),
		"a bad escape":          without(":path", ":path: /%zz"),
		"two methods":           asking(":method: GET"),
		"two paths":             asking(":path: /b"),
		"a status":              asking(":status: 200"),
		"another pseudo-field":  asking(":protocol: x"),
		"a late pseudo-field":   fields(":method: GET", ":scheme: https", "x: y", ":authority: a", ":path: /"),
		"a connection":          asking("connection: close"),
		"a proxy's connection":  asking("proxy-connection: close"),
		"keep-alive":            asking("keep-alive: 5"),
		"another encoding":      asking("transfer-encoding: chunked"),
		"an upgrade":            asking("upgrade: websocket"),
		"an encoding is taken":  asking("te: gzip"),
		"a large letter":        asking("Xx: y"),
		"the last letter":       asking("xZ: y"),
		"two words":             asking("x y: z"),
		"no name":               asking(": x"),
		"two lines":             asking("x: y\r\nz: a"),
		"a zero":                asking("x: \x00"),
		"two hosts":             asking("host: a", "host: a"),
		"another host":          asking("host: b"),
		"a user":                without(":authority", ":authority: u@a"),
		"a host of two words":   without(":authority", ":authority: a b"),
		"no length":             asking("content-length: x"),
		"less than nothing":     asking("content-length: -1"),
		"two lengths":           asking("content-length: 0", "content-length: 0"),
		"a length of no body":   asking("content-length: 1"),
		"a tunnel to nowhere":   fields(":method: CONNECT"),
		"a tunnel to a path":    fields(":method: CONNECT", ":authority: a", ":path: /"),
		"a tunnel of a scheme":  fields(":method: CONNECT", ":authority: a", ":scheme: https"),
	} {
		t.Run(name, func(t *testing.T) {
			c, saw := dialSeeing(t)
			c.ask(1, endsStream, list)
			if got := c.hears(); got != "reset 1 PROTOCOL_ERROR" {
				t.Errorf("the client hears %s", got)
			}
			c.ask(3, endsStream, asking())
			if got := c.hears(); got != "200" {
				t.Errorf("the next request is answered %s", got)
			}
			if <-saw; len(saw) > 0 {
				t.Errorf("the handler sees %s", <-saw)
			}
		})
	}
}

// TestWhatHandlersSee of requests that are well-formed.
func TestWhatHandlersSee(t *testing.T) {
	for name, c := range map[string]struct {
		list []hpack.HeaderField
		body string // empty ends with the headers; what ends in "sum" has trailers
		want string
	}{
		"the least":       {fields(":method: GET", ":scheme: http", ":path: /b?c"), "", `GET /b?c /b||""|map[]|0 "" <nil>|map[]`},
		"all":             {asking("x: y", "te: trailers", "x: z", "accept: b"), "", `GET / /||"a"|map[Accept:[b] Te:[trailers] X:[y z]]|0 "" <nil>|map[]`},
		"of the server":   {fields(":method: OPTIONS", ":scheme: https", ":path: *"), "", `OPTIONS * *||""|map[]|0 "" <nil>|map[]`},
		"a tunnel":        {fields(":method: CONNECT", ":authority: a:1"), "", `CONNECT a:1 |a:1|"a:1"|map[]|0 "" <nil>|map[]`},
		"a host":          {fields(":method: GET", ":scheme: https", ":path: /", "host: b"), "", `GET / /||"b"|map[]|0 "" <nil>|map[]`},
		"a host twice":    {asking("host: a"), "", `GET / /||"a"|map[]|0 "" <nil>|map[]`},
		"no host":         {fields(":method: GET", ":scheme: https", ":path: /", "host: "), "", `GET / /||""|map[]|0 "" <nil>|map[]`},
		"cookies":         {asking("cookie: a=b", "x: y", "cookie: c=d"), "", `GET / /||"a"|map[Cookie:[a=b; c=d] X:[y]]|0 "" <nil>|map[]`},
		"a cookie":        {asking("cookie: a=b"), "", `GET / /||"a"|map[Cookie:[a=b]]|0 "" <nil>|map[]`},
		"no body":         {asking("content-length: 0"), "", `GET / /||"a"|map[Content-Length:[0]]|0 "" <nil>|map[]`},
		"a body":          {asking(), "text", `GET / /||"a"|map[]|-1 "text" <nil>|map[]`},
		"a counted body":  {asking("content-length: 4"), "text", `GET / /||"a"|map[Content-Length:[4]]|4 "text" <nil>|map[]`},
		"who would wait":  {asking("expect: 100-continue"), "text", `GET / /||"a"|map[]|-1 "text" <nil>|map[]`},
		"who expects":     {asking("expect: x"), "text", `GET / /||"a"|map[Expect:[x]]|-1 "text" <nil>|map[]`},
		"trailers":        {asking("trailer: b, c"), "text", `GET / /||"a"|map[]|-1 "text" <nil>|map[B:[] C:[]]`},
		"a late trailer":  {asking("trailer: x-sum"), "text, sum", `GET / /||"a"|map[]|-1 "text, sum" <nil>|map[X-Sum:[1 2]]`},
		"other trailers":  {asking("trailer: y"), "text, sum", `GET / /||"a"|map[]|-1 "text, sum" <nil>|map[Y:[]]`},
		"what is none":    {asking("trailer: host, x-sum"), "text, sum", `GET / /||"a"|map[]|-1 "text, sum" <nil>|map[Host:[] X-Sum:[1 2]]`},
		"of all lengths":  {asking("x: "+strings.Repeat("v", 200), strings.Repeat("n", 200)+": y"), "", `GET / /||"a"|map[N` + strings.Repeat("n", 199) + `:[y] X:[` + strings.Repeat("v", 200) + `]]|0 "" <nil>|map[]`},
		"nothing at once": {asking(), "-", `GET / /||"a"|map[]|-1 "-" <nil>|map[]`},
	} {
		t.Run(name, func(t *testing.T) {
			client, saw := dialSeeing(t)
			if c.body == "" {
				client.ask(1, endsStream, c.list)
			} else {
				client.ask(1, 0, c.list)
				trailers := strings.HasSuffix(c.body, "sum")
				client.must(client.WriteData(1, !trailers, []byte(c.body)))
				if trailers {
					client.ask(1, endsStream, fields("x-sum: 1", "host: b", "x-sum: 2"))
				}
			}
			code := client.hears()
			if code == "100" {
				code = client.hears()
			}
			if code != "200" {
				t.Fatalf("it is answered %s", code)
			}
			if got := <-saw; got != c.want {
				t.Errorf("the handler sees\n%s, want\n%s", got, c.want)
			}
		})
	}
}

// TestBodiesOfOtherLengths than were declared, and trailers that are none, end their stream: nobody
// takes the body for whole.
func TestBodiesOfOtherLengths(t *testing.T) {
	for name, c := range map[string]struct {
		declared string
		frames   func(c *unread)
		want     string
	}{
		"more": {"4", func(c *unread) { c.must(c.WriteData(1, false, []byte("texts"))) }, "reset 1 PROTOCOL_ERROR"},
		"more in parts": {"4", func(c *unread) {
			c.must(c.WriteData(1, false, []byte("tex")))
			c.must(c.WriteData(1, false, []byte("ts")))
		}, "reset 1 PROTOCOL_ERROR"},
		"less": {"4", func(c *unread) { c.must(c.WriteData(1, true, []byte("tex"))) }, "reset 1 PROTOCOL_ERROR"},
		"less, then trailers": {"4", func(c *unread) {
			c.must(c.WriteData(1, false, []byte("tex")))
			c.ask(1, endsStream, fields("x: y"))
		}, "reset 1 PROTOCOL_ERROR"},
		"trailers that do not end it": {"4", func(c *unread) { c.ask(1, 0, fields("x: y")) }, "reset 1 PROTOCOL_ERROR"},
		"nor are the end":             {"0", func(c *unread) { c.ask(1, 0, fields("x: y")) }, "reset 1 PROTOCOL_ERROR"},
		"a path at the end":           {"0", func(c *unread) { c.ask(1, endsStream, fields(":path: /")) }, "reset 1 PROTOCOL_ERROR"},
		"malformed trailers":          {"0", func(c *unread) { c.ask(1, endsStream, fields("connection: x")) }, "reset 1 PROTOCOL_ERROR"},
		"data after the end": {"0", func(c *unread) {
			c.must(c.WriteData(1, true, nil))
			c.must(c.WriteData(1, true, []byte("x")))
		}, "reset 1 STREAM_CLOSED"},
		"trailers after the end": {"0", func(c *unread) {
			c.must(c.WriteData(1, true, nil))
			c.ask(1, endsStream, fields("x: y"))
		}, "reset 1 STREAM_CLOSED"},
		"padding is none of it": {"4", func(c *unread) { c.must(c.WriteDataPadded(1, true, []byte("text"), make([]byte, 7))) }, "ping 77"},
	} {
		t.Run(name, func(t *testing.T) {
			over := make(chan error, 1)
			client := dialUnread(t, func(_ http.ResponseWriter, r *http.Request) {
				b, err := io.ReadAll(r.Body)
				if err == nil && string(b) != "text" && c.declared == "4" {
					t.Errorf("the handler takes %q for whole", b)
				}
				<-r.Context().Done()
				over <- err
			})
			client.ask(1, 0, asking("content-length: "+c.declared))
			c.frames(client)
			if c.want != "ping 77" {
				if got := client.hears(); got != c.want {
					t.Errorf("the client hears %s, want %s", got, c.want)
				}
				if err := <-over; err == nil && !strings.HasSuffix(name, "after the end") {
					t.Error("the body is whole")
				}
			}
			client.lives()
		})
	}
}
