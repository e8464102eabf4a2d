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

// describeRequest formats a request as its handler sees it.
func describeRequest(r *http.Request) string {
	body, err := io.ReadAll(r.Body)
	return fmt.Sprintf("%s %s %s|%s|%q|%v|%d %q %v|%v", r.Method, r.RequestURI, r.URL.Path, r.URL.Host, r.Host,
		r.Header, r.ContentLength, body, err, r.Trailer)
}

// dialDescribing connects to a server whose handler returns the described request.
func dialDescribing(t *testing.T) (*rawClient, chan string) {
	t.Helper()
	saw := make(chan string, 10)
	return dialRaw(t, func(_ http.ResponseWriter, r *http.Request) { saw <- describeRequest(r) }), saw
}

// fields parses lines of the form "name: value".
func fields(lines ...string) (list []hpack.HeaderField) {
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		list = append(list, hpack.HeaderField{Name: name, Value: value})
	}
	return list
}

// getFields returns the fields of a GET request, and more.
func getFields(more ...string) []hpack.HeaderField {
	return fields(append([]string{":method: GET", ":scheme: https", ":authority: a", ":path: /"}, more...)...)
}

const (
	endsStream   = http2.FlagHeadersEndStream
	endsHeaders  = http2.FlagHeadersEndHeaders
	padded       = http2.FlagHeadersPadded
	withPriority = http2.FlagHeadersPriority
)

// sendHeaders sends a HEADERS frame with the fields.
func (c *rawClient) sendHeaders(id uint32, flags http2.Flags, list []hpack.HeaderField) {
	c.t.Helper()
	c.requireNoError(c.WriteRawFrame(http2.FrameHeaders, flags|endsHeaders, id, c.encode(list)))
}

func (c *rawClient) encode(list []hpack.HeaderField) []byte {
	c.t.Helper()
	c.block.Reset()
	for _, f := range list {
		c.requireNoError(c.hpack.WriteField(f))
	}
	return c.block.Bytes()
}

// readEvent reads until a status, RST_STREAM, GOAWAY or PING, and describes it.
func (c *rawClient) readEvent() string {
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

// waitFor reads until the event want. It fails the test if the connection ends.
func (c *rawClient) waitFor(want string) {
	c.t.Helper()
	for {
		got := c.readEvent()
		switch {
		case got == want:
			return
		case strings.HasPrefix(got, "away") && got != "away NO_ERROR", got == io.EOF.Error(), got == io.ErrClosedPipe.Error():
			c.t.Fatalf("got %s, want %s", got, want)
		}
	}
}

// ping checks that the connection is open.
func (c *rawClient) ping() {
	c.t.Helper()
	c.requireNoError(c.WritePing(false, [8]byte{77}))
	if got := c.readEvent(); got != "ping 77" {
		c.t.Errorf("got %s, want ping 77", got)
	}
}

// TestMalformedRequestResetsStream checks that malformed requests reach no handler and reset only
// their stream.
func TestMalformedRequestResetsStream(t *testing.T) {
	without := func(name string, more ...string) (list []hpack.HeaderField) {
		for _, f := range getFields() {
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
		"two methods":           getFields(":method: GET"),
		"two paths":             getFields(":path: /b"),
		"a status":              getFields(":status: 200"),
		"another pseudo-field":  getFields(":protocol: x"),
		"a late pseudo-field":   fields(":method: GET", ":scheme: https", "x: y", ":authority: a", ":path: /"),
		"a connection":          getFields("connection: close"),
		"a proxy's connection":  getFields("proxy-connection: close"),
		"keep-alive":            getFields("keep-alive: 5"),
		"another encoding":      getFields("transfer-encoding: chunked"),
		"an upgrade":            getFields("upgrade: websocket"),
		"an encoding is taken":  getFields("te: gzip"),
		"a large letter":        getFields("Xx: y"),
		"the last letter":       getFields("xZ: y"),
		"two words":             getFields("x y: z"),
		"no name":               getFields(": x"),
		"two lines":             getFields("x: y\r\nz: a"),
		"a zero":                getFields("x: \x00"),
		"two hosts":             getFields("host: a", "host: a"),
		"another host":          getFields("host: b"),
		"a user":                without(":authority", ":authority: u@a"),
		"a host of two words":   without(":authority", ":authority: a b"),
		"no length":             getFields("content-length: x"),
		"less than nothing":     getFields("content-length: -1"),
		"two lengths":           getFields("content-length: 0", "content-length: 0"),
		"a length of no body":   getFields("content-length: 1"),
		"a tunnel to nowhere":   fields(":method: CONNECT"),
		"a tunnel to a path":    fields(":method: CONNECT", ":authority: a", ":path: /"),
		"a tunnel of a scheme":  fields(":method: CONNECT", ":authority: a", ":scheme: https"),
	} {
		t.Run(name, func(t *testing.T) {
			rawClient, saw := dialDescribing(t)
			rawClient.sendHeaders(1, endsStream, list)
			if got := rawClient.readEvent(); got != "reset 1 PROTOCOL_ERROR" {
				t.Errorf("got %s, want a reset", got)
			}
			rawClient.sendHeaders(3, endsStream, getFields())
			if got := rawClient.readEvent(); got != "200" {
				t.Errorf("next request got %s, want \"200\"", got)
			}
			<-saw
			if len(saw) > 0 {
				t.Errorf("the handler got %s, want none", <-saw)
			}
		})
	}
}

// TestHandlersSeeFieldsOfRequests checks how handlers see valid requests.
func TestHandlersSeeFieldsOfRequests(t *testing.T) {
	for name, test := range map[string]struct {
		list []hpack.HeaderField
		body string // "" ends the stream with HEADERS; a body that ends in "sum" has trailers
		want string
	}{
		"the least": {
			list: fields(":method: GET", ":scheme: http", ":path: /b?c"),
			body: "",
			want: `GET /b?c /b||""|map[]|0 "" <nil>|map[]`,
		},
		"all": {
			list: getFields("x: y", "te: trailers", "x: z", "accept: b"),
			body: "",
			want: `GET / /||"a"|map[Accept:[b] Te:[trailers] X:[y z]]|0 "" <nil>|map[]`,
		},
		"of the server": {
			list: fields(":method: OPTIONS", ":scheme: https", ":path: *"),
			body: "",
			want: `OPTIONS * *||""|map[]|0 "" <nil>|map[]`,
		},
		"a tunnel": {
			list: fields(":method: CONNECT", ":authority: a:1"),
			body: "",
			want: `CONNECT a:1 |a:1|"a:1"|map[]|0 "" <nil>|map[]`,
		},
		"a host": {
			list: fields(":method: GET", ":scheme: https", ":path: /", "host: b"),
			body: "",
			want: `GET / /||"b"|map[]|0 "" <nil>|map[]`,
		},
		"a host twice": {list: getFields("host: a"), body: "", want: `GET / /||"a"|map[]|0 "" <nil>|map[]`},
		"no host": {
			list: fields(":method: GET", ":scheme: https", ":path: /", "host: "),
			body: "",
			want: `GET / /||""|map[]|0 "" <nil>|map[]`,
		},
		"cookies": {
			list: getFields("cookie: a=b", "x: y", "cookie: c=d"),
			body: "",
			want: `GET / /||"a"|map[Cookie:[a=b; c=d] X:[y]]|0 "" <nil>|map[]`,
		},
		"a cookie": {
			list: getFields("cookie: a=b"),
			body: "",
			want: `GET / /||"a"|map[Cookie:[a=b]]|0 "" <nil>|map[]`,
		},
		"no body": {
			list: getFields("content-length: 0"),
			body: "",
			want: `GET / /||"a"|map[Content-Length:[0]]|0 "" <nil>|map[]`,
		},
		"a body": {list: getFields(), body: "text", want: `GET / /||"a"|map[]|-1 "text" <nil>|map[]`},
		"a counted body": {
			list: getFields("content-length: 4"),
			body: "text",
			want: `GET / /||"a"|map[Content-Length:[4]]|4 "text" <nil>|map[]`,
		},
		"expects 100-continue": {
			list: getFields("expect: 100-continue"),
			body: "text",
			want: `GET / /||"a"|map[]|-1 "text" <nil>|map[]`,
		},
		"unknown expectation": {
			list: getFields("expect: x"),
			body: "text",
			want: `GET / /||"a"|map[Expect:[x]]|-1 "text" <nil>|map[]`,
		},
		"trailers": {
			list: getFields("trailer: b, c"),
			body: "text",
			want: `GET / /||"a"|map[]|-1 "text" <nil>|map[B:[] C:[]]`,
		},
		"a late trailer": {
			list: getFields("trailer: x-sum"),
			body: "text, sum",
			want: `GET / /||"a"|map[]|-1 "text, sum" <nil>|map[X-Sum:[1 2]]`,
		},
		"other trailers": {
			list: getFields("trailer: y"),
			body: "text, sum",
			want: `GET / /||"a"|map[]|-1 "text, sum" <nil>|map[Y:[]]`,
		},
		"what is none": {
			list: getFields("trailer: host, x-sum"),
			body: "text, sum",
			want: `GET / /||"a"|map[]|-1 "text, sum" <nil>|map[Host:[] X-Sum:[1 2]]`,
		},
		"of all lengths": {
			list: getFields("x: "+strings.Repeat("v", 200), strings.Repeat("n", 200)+": y"),
			body: "",
			want: `GET / /||"a"|map[N` + strings.Repeat("n", 199) + `:[y] X:[` + strings.Repeat("v", 200) + `]]|0 "" <nil>|map[]`,
		},
		"nothing at once": {list: getFields(), body: "-", want: `GET / /||"a"|map[]|-1 "-" <nil>|map[]`},
	} {
		t.Run(name, func(t *testing.T) {
			client, saw := dialDescribing(t)
			if test.body == "" {
				client.sendHeaders(1, endsStream, test.list)
			} else {
				client.sendHeaders(1, 0, test.list)
				trailers := strings.HasSuffix(test.body, "sum")
				client.requireNoError(client.WriteData(1, !trailers, []byte(test.body)))
				if trailers {
					client.sendHeaders(1, endsStream, fields("x-sum: 1", "host: b", "x-sum: 2"))
				}
			}
			code := client.readEvent()
			if code == "100" {
				code = client.readEvent()
			}
			if code != "200" {
				t.Fatalf("response = %s, want \"200\"", code)
			}
			if got := <-saw; got != test.want {
				t.Errorf("request =\n%s, want\n%s", got, test.want)
			}
		})
	}
}

// TestBodyLengthMismatchResetsStream checks that bodies of another length than declared, and
// invalid trailers, reset the stream and fail the body.
func TestBodyLengthMismatchResetsStream(t *testing.T) {
	for name, test := range map[string]struct {
		declared string
		frames   func(c *rawClient)
		want     string
	}{
		"more": {
			declared: "4",
			frames:   func(c *rawClient) { c.requireNoError(c.WriteData(1, false, []byte("texts"))) },
			want:     "reset 1 PROTOCOL_ERROR",
		},
		"more in parts": {declared: "4", frames: func(c *rawClient) {
			c.requireNoError(c.WriteData(1, false, []byte("tex")))
			c.requireNoError(c.WriteData(1, false, []byte("ts")))
		}, want: "reset 1 PROTOCOL_ERROR"},
		"less": {
			declared: "4",
			frames:   func(c *rawClient) { c.requireNoError(c.WriteData(1, true, []byte("tex"))) },
			want:     "reset 1 PROTOCOL_ERROR",
		},
		"less, then trailers": {declared: "4", frames: func(c *rawClient) {
			c.requireNoError(c.WriteData(1, false, []byte("tex")))
			c.sendHeaders(1, endsStream, fields("x: y"))
		}, want: "reset 1 PROTOCOL_ERROR"},
		"trailers that do not end it": {
			declared: "4",
			frames:   func(c *rawClient) { c.sendHeaders(1, 0, fields("x: y")) },
			want:     "reset 1 PROTOCOL_ERROR",
		},
		"nor are the end": {
			declared: "0",
			frames:   func(c *rawClient) { c.sendHeaders(1, 0, fields("x: y")) },
			want:     "reset 1 PROTOCOL_ERROR",
		},
		"a path at the end": {
			declared: "0",
			frames:   func(c *rawClient) { c.sendHeaders(1, endsStream, fields(":path: /")) },
			want:     "reset 1 PROTOCOL_ERROR",
		},
		"malformed trailers": {
			declared: "0",
			frames:   func(c *rawClient) { c.sendHeaders(1, endsStream, fields("connection: x")) },
			want:     "reset 1 PROTOCOL_ERROR",
		},
		"data after the end": {declared: "0", frames: func(c *rawClient) {
			c.requireNoError(c.WriteData(1, true, nil))
			c.requireNoError(c.WriteData(1, true, []byte("x")))
		}, want: "reset 1 STREAM_CLOSED"},
		"trailers after the end": {declared: "0", frames: func(c *rawClient) {
			c.requireNoError(c.WriteData(1, true, nil))
			c.sendHeaders(1, endsStream, fields("x: y"))
		}, want: "reset 1 STREAM_CLOSED"},
		"padding is none of it": {
			declared: "4",
			frames:   func(c *rawClient) { c.requireNoError(c.WriteDataPadded(1, true, []byte("text"), make([]byte, 7))) },
			want:     "ping 77",
		},
	} {
		t.Run(name, func(t *testing.T) {
			over := make(chan error, 1)
			client := dialRaw(t, func(_ http.ResponseWriter, r *http.Request) {
				b, err := io.ReadAll(r.Body)
				if err == nil && string(b) != "text" && test.declared == "4" {
					t.Errorf("the handler read the complete body %q", b)
				}
				<-r.Context().Done()
				over <- err
			})
			client.sendHeaders(1, 0, getFields("content-length: "+test.declared))
			test.frames(client)
			if test.want != "ping 77" {
				if got := client.readEvent(); got != test.want {
					t.Errorf("got %s, want %s", got, test.want)
				}
				if err := <-over; err == nil && !strings.HasSuffix(name, "after the end") {
					t.Error("reading the body succeeded, want an error")
				}
			}
			client.ping()
		})
	}
}
