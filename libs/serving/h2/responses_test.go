package h2_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/http2"
)

// readResponse reads a response until its end and returns a summary. It omits the date, which every
// final response must have.
func (c *rawClient) readResponse(id uint32) string {
	c.t.Helper()
	var events []string
	var data []byte
	flush := func() {
		if len(data) > 20 {
			events = append(events, fmt.Sprint(len(data), " bytes"))
		} else if len(data) > 0 {
			events = append(events, fmt.Sprintf("%q", data))
		}
		data = nil
	}
	for {
		frame, err := c.ReadFrame()
		if err != nil {
			return fmt.Sprint(events, err)
		}
		if away, ok := frame.(*http2.GoAwayFrame); ok {
			events = append(events, "away "+away.ErrCode.String())
		}
		if frame.Header().StreamID != id {
			continue
		}
		switch f := frame.(type) {
		case *http2.MetaHeadersFrame:
			flush()
			var names []string
			for _, field := range f.Fields {
				switch field.Name {
				case ":status":
					events = append(events, field.Value)
				case "date":
					if field.Value == "then" {
						names = append(names, "date=then")
					}
				default:
					names = append(names, field.Name+"="+field.Value)
				}
			}
			slices.Sort(names)
			events = append(events, names...)
		case *http2.DataFrame:
			data = append(data, f.Data()...)
		case *http2.RSTStreamFrame:
			flush()
			return strings.Join(append(events, "reset "+f.ErrCode.String()), "; ")
		default:
			continue
		}
		if frame.Header().Flags.Has(http2.FlagDataEndStream) {
			flush()
			return strings.Join(events, "; ")
		}
	}
}

const textPlain, contentLength = "content-type=text/plain; charset=utf-8", "content-length="

// writeBody writes text and checks the error.
func writeBody(t *testing.T, w http.ResponseWriter, text string, want error) {
	if n, err := w.Write([]byte(text)); !errors.Is(err, want) || err == nil && n != len(text) {
		t.Errorf("Write(%.20q) = %d, %v; want error %v", text, n, err, want)
	}
}

// responseCase is a handler with the summary of its response.
type responseCase struct {
	handler func(t *testing.T, w http.ResponseWriter)
	want    string
}

func testResponses(t *testing.T, method string, all map[string]responseCase) {
	for name, a := range all {
		t.Run(name, func(t *testing.T) {
			over := make(chan struct{})
			rawClient := dialRaw(t, func(w http.ResponseWriter, _ *http.Request) {
				defer close(over)
				a.handler(t, w)
			})
			rawClient.sendHeaders(1, endsStream, fields(":method: "+method, ":scheme: https", ":authority: a", ":path: /"))
			if got := rawClient.readResponse(1); got != a.want {
				t.Errorf("response =\n%s, want\n%s", got, a.want)
			}
			rawClient.ping()
			<-over
		})
	}
}

// TestResponsesHaveExpectedHeaders checks which header fields a response has.
func TestResponsesHaveExpectedHeaders(t *testing.T) {
	setHeader := func(name string, values ...string) func(*testing.T, http.ResponseWriter) {
		return func(_ *testing.T, w http.ResponseWriter) { w.Header()[name] = values }
	}
	testResponses(t, "GET", map[string]responseCase{
		"no header field":                       {handler: func(*testing.T, http.ResponseWriter) {}, want: "200; content-length=0"},
		"repeated field":                        {handler: setHeader("X", "a", "b"), want: "200; content-length=0; x=a; x=b"},
		"Date of the handler is kept":           {handler: setHeader("Date", "then"), want: "200; content-length=0; date=then"},
		"field with an invalid name is dropped": {handler: setHeader("X y", "a"), want: "200; content-length=0"},
		"invalid value is dropped":              {handler: setHeader("X", "a\nb", "c"), want: "200; content-length=0; x=c"},
		"hop-by-hop header is dropped":          {handler: setHeader("Keep-Alive", "5"), want: "200; content-length=0"},
		"Transfer-Encoding is dropped":          {handler: setHeader("Transfer-Encoding", "chunked"), want: "200; content-length=0"},
		"Upgrade is dropped":                    {handler: setHeader("Upgrade", "x"), want: "200; content-length=0"},
		"Connection: keep-alive is dropped":     {handler: setHeader("Connection", "keep-alive"), want: "200; content-length=0"},
		"Connection without values is dropped":  {handler: setHeader("Connection"), want: "200; content-length=0"},
		"invalid Content-Length is dropped":     {handler: setHeader("Content-Length", "x"), want: "200; content-length=0"},
		"nil Content-Type disables sniffing": {
			handler: func(t *testing.T, w http.ResponseWriter) { w.Header()["Content-Type"] = nil; writeBody(t, w, "a", nil) },
			want:    "200; " + contentLength + `1; "a"`,
		},
		"Content-Encoding disables sniffing": {handler: func(t *testing.T, w http.ResponseWriter) {
			w.Header().Set("Content-Encoding", "gzip")
			writeBody(t, w, "a", nil)
		}, want: "200; content-encoding=gzip; " + contentLength + `1; "a"`},
		"empty Content-Encoding keeps sniffing": {handler: func(t *testing.T, w http.ResponseWriter) {
			w.Header().Set("Content-Encoding", "")
			writeBody(t, w, "a", nil)
		}, want: "200; content-encoding=; " + contentLength + "1; " + textPlain + `; "a"`},
		"informational response precedes the final one": {handler: func(_ *testing.T, w http.ResponseWriter) {
			w.Header().Set("Link", "x")
			w.Header().Set("Content-Length", "0")
			w.WriteHeader(http.StatusEarlyHints)
			w.Header().Del("Link")
		}, want: "103; link=x; 200; content-length=0"},
		"second WriteHeader is ignored": {handler: func(_ *testing.T, w http.ResponseWriter) {
			w.WriteHeader(http.StatusCreated)
			w.WriteHeader(http.StatusAccepted)
		}, want: "201; content-length=0"},
		"header field after WriteHeader is ignored": {handler: func(_ *testing.T, w http.ResponseWriter) {
			w.WriteHeader(http.StatusCreated)
			w.Header().Set("X", "a")
		}, want: "201; content-length=0"},
		"invalid status panics": {handler: func(t *testing.T, w http.ResponseWriter) {
			for _, code := range []int{0, 99, 1000} {
				func() {
					defer func() {
						if recover() == nil {
							t.Errorf("WriteHeader(%d) returned, want a panic", code)
						}
					}()
					w.WriteHeader(code)
				}()
			}
			w.WriteHeader(999)
		}, want: "999; content-length=0"},
	})
	c := dialRaw(t, func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Connection", "close") })
	c.sendHeaders(1, endsStream, getFields())
	if got := c.readResponse(1); got != "away NO_ERROR; 200; content-length=0" {
		t.Errorf("response with Connection: close = %s, want \"away NO_ERROR; 200; content-length=0\"", got)
	}
}

// TestBodyWritesMatchDeclaredLength checks bodies, lengths and errors of writes.
func TestBodyWritesMatchDeclaredLength(t *testing.T) {
	long := strings.Repeat("x", 20_000)
	flush := func(t *testing.T, w http.ResponseWriter) {
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
	}
	text := func(t *testing.T, w http.ResponseWriter) { writeBody(t, w, "text", nil) }
	status := func(code int) func(t *testing.T, w http.ResponseWriter) {
		return func(t *testing.T, w http.ResponseWriter) {
			w.WriteHeader(code)
			writeBody(t, w, "text", http.ErrBodyNotAllowed)
		}
	}
	declared := func(n string, parts ...string) func(t *testing.T, w http.ResponseWriter) {
		return func(t *testing.T, w http.ResponseWriter) {
			w.Header().Set("Content-Length", n)
			for _, part := range parts {
				writeBody(t, w, part, nil)
			}
		}
	}
	testResponses(t, "GET", map[string]responseCase{
		"short body has Content-Length": {handler: text, want: "200; " + contentLength + "4; " + textPlain + `; "text"`},
		"204 has no body":               {handler: status(http.StatusNoContent), want: "204"},
		"304 has no body":               {handler: status(http.StatusNotModified), want: "304"},
		"write beyond Content-Length fails": {handler: func(t *testing.T, w http.ResponseWriter) {
			declared("4", "tex")(t, w)
			writeBody(t, w, "ts", http.ErrContentLength)
			writeBody(t, w, "t", nil)
		}, want: "200; " + contentLength + "4; " + textPlain + `; "text"`},
		"body shorter than Content-Length resets the stream": {
			handler: declared("5", "text"),
			want:    "200; " + contentLength + "5; " + textPlain + `; "text"; reset INTERNAL_ERROR`,
		},
		"body flushed in parts has no Content-Length": {handler: func(t *testing.T, w http.ResponseWriter) { text(t, w); flush(t, w); text(t, w) },
			want: "200; " + textPlain + `; "texttext"`},
		"flush before the body disables sniffing": {
			handler: func(t *testing.T, w http.ResponseWriter) { flush(t, w); flush(t, w); text(t, w) },
			want:    `200; "text"`,
		},
		"repeated flush has no effect": {handler: func(t *testing.T, w http.ResponseWriter) { text(t, w); flush(t, w); flush(t, w) },
			want: "200; " + textPlain + `; "text"`},
		"long body has no Content-Length": {handler: func(t *testing.T, w http.ResponseWriter) { text(t, w); writeBody(t, w, long, nil); text(t, w) },
			want: "200; " + textPlain + `; 20008 bytes`},
		"long body keeps its declared Content-Length": {handler: declared("20000", long), want: "200; " + contentLength + "20000; " + textPlain + "; 20000 bytes"},
		"body over 4096 bytes has no Content-Length": {handler: func(t *testing.T, w http.ResponseWriter) { writeBody(t, w, long[:4097], nil) },
			want: "200; " + textPlain + "; 4097 bytes"},
		"body of 4096 bytes has Content-Length": {handler: func(t *testing.T, w http.ResponseWriter) { writeBody(t, w, long[:4096], nil) },
			want: "200; " + contentLength + "4096; " + textPlain + "; 4096 bytes"},
		"Send and Write alternate": {handler: func(t *testing.T, w http.ResponseWriter) {
			s := w.(interface{ Send([]byte) error })
			for range 2 {
				if err := s.Send([]byte("text")); err != nil {
					t.Error(err)
				}
			}
			writeBody(t, w, "a", nil)
			if err := s.Send([]byte("b")); err != nil {
				t.Error(err)
			}
		}, want: "200; " + textPlain + `; "texttextab"`},
		"Send after 204 fails": {handler: func(t *testing.T, w http.ResponseWriter) {
			w.WriteHeader(http.StatusNoContent)
			flush(t, w)
			if err := w.(interface{ Send([]byte) error }).Send([]byte("text")); !errors.Is(err, http.ErrBodyNotAllowed) {
				t.Error(err)
			}
		}, want: "204"},
		"Send beyond Content-Length fails": {handler: func(t *testing.T, w http.ResponseWriter) {
			declared("4", "text")(t, w)
			flush(t, w)
			if err := w.(interface{ Send([]byte) error }).Send([]byte("s")); !errors.Is(err, http.ErrContentLength) {
				t.Error(err)
			}
		}, want: "200; " + contentLength + "4; " + textPlain + `; "text"`},
	})
	testResponses(t, "HEAD", map[string]responseCase{
		"short body is omitted":         {handler: text, want: "200; " + contentLength + "4; " + textPlain},
		"no body has no Content-Length": {handler: func(*testing.T, http.ResponseWriter) {}, want: "200"},
		"long body is omitted without Content-Length": {handler: func(t *testing.T, w http.ResponseWriter) { writeBody(t, w, long, nil) },
			want: "200; " + textPlain},
		"declared Content-Length is kept": {handler: declared("5"), want: "200; content-length=5"},
		"flushed body is omitted": {handler: func(t *testing.T, w http.ResponseWriter) { text(t, w); flush(t, w); text(t, w) },
			want: "200; " + textPlain},
	})
}

// TestDeclaredAndUndeclaredTrailersAreSent checks declared and undeclared trailers.
func TestDeclaredAndUndeclaredTrailersAreSent(t *testing.T) {
	long := strings.Repeat("x", 20_000)
	testResponses(t, "GET", map[string]responseCase{
		"declared trailer": {handler: func(t *testing.T, w http.ResponseWriter) {
			w.Header().Set("Trailer", "X-Sum, Y")
			w.Header().Set("Content-Length", "20000")
			writeBody(t, w, long, nil)
			w.Header().Set("X-Sum", "1")
		}, want: "200; content-length=20000; " + textPlain + "; trailer=X-Sum, Y; 20000 bytes; x-sum=1"},
		"undeclared trailer": {handler: func(t *testing.T, w http.ResponseWriter) {
			writeBody(t, w, "text", nil)
			w.Header().Set(http.TrailerPrefix+"X-Sum", "1")
		}, want: "200; content-length=4; " + textPlain + `; "text"; x-sum=1`},
		"trailer without a body": {handler: func(_ *testing.T, w http.ResponseWriter) {
			w.Header().Set("Trailer", "X-Sum")
			w.WriteHeader(http.StatusOK)
			w.Header().Set("X-Sum", "1")
		}, want: "200; content-length=0; trailer=X-Sum; x-sum=1"},
		"declared trailer of a detached response": {handler: func(t *testing.T, w http.ResponseWriter) {
			w.Header().Set("Trailer", "X-Sum")
			w.Header().Set("X-Sum", "1")
			_ = http.NewResponseController(w).Flush()
			w.(detacher).Detach(func(end func(any)) { end(nil) })
		}, want: "200; trailer=X-Sum; x-sum=1; x-sum=1"},
		"undeclared trailer set after the handler": {handler: func(t *testing.T, w http.ResponseWriter) {
			w.Header().Set("X-Sum", "2")
			_ = http.NewResponseController(w).Flush()
			w.(detacher).Detach(func(end func(any)) { w.Header().Set(http.TrailerPrefix+"X-Sum", "1"); end(nil) })
		}, want: "200; x-sum=2; x-sum=1"},
		"header field set after the handler": {handler: func(t *testing.T, w http.ResponseWriter) {
			w.Header().Set("X", "2")
			w.(detacher).Detach(func(end func(any)) { w.Header().Set("Y", "1"); end(nil) })
		}, want: "200; content-length=0; x=2; y=1"},
	})
}

// TestWritesFailAfterHandlerReturns checks that a response writer fails after its handler has
// returned.
func TestWritesFailAfterHandlerReturns(t *testing.T) {
	kept := make(chan http.ResponseWriter, 1)
	rawClient := dialRaw(t, func(w http.ResponseWriter, _ *http.Request) { kept <- w })
	for id := uint32(1); id < 5; id += 2 {
		rawClient.sendHeaders(id, 0, getFields()) // the handler's end is known by the reset
		if got := rawClient.readResponse(id); got != "200; content-length=0" {
			t.Errorf("response = %s, want \"200; content-length=0\"", got)
		}
		if got := rawClient.readEvent(); got != fmt.Sprint("reset ", id, " NO_ERROR") {
			t.Errorf("got event %s, want the stream %d reset with NO_ERROR", got, id)
		}
		rawClient.ping()
		w := <-kept
		w.WriteHeader(http.StatusEarlyHints)
		if n, err := w.Write([]byte("text")); err == nil || n > 0 {
			t.Errorf("Write() = %d, %v, want 0 and an error", n, err)
		}
		if http.NewResponseController(w).Flush() == nil || w.(interface{ Send([]byte) error }).Send(nil) == nil {
			t.Error("Flush() or Send() succeeded")
		}
	}
}

// TestContinueIsSentOnceBeforeResponse checks that 100 is sent once, and only before the response.
func TestContinueIsSentOnceBeforeResponse(t *testing.T) {
	for name, test := range map[string]struct {
		first string // before the body is read
		want  []string
	}{
		"body read first":        {first: "", want: []string{"100", "200"}},
		"response flushed first": {first: "flush", want: []string{"200"}},
	} {
		t.Run(name, func(t *testing.T) {
			client := dialRaw(t, func(w http.ResponseWriter, r *http.Request) {
				if test.first != "" {
					_ = http.NewResponseController(w).Flush()
				}
				for range 2 {
					_, _ = r.Body.Read(make([]byte, 1))
				}
			})
			client.sendHeaders(1, 0, getFields("expect: 100-continue"))
			client.requireNoError(client.WriteData(1, true, []byte("ab")))
			if got := client.readStatuses(1); !slices.Equal(got, test.want) {
				t.Errorf("statuses = %v, want %v", got, test.want)
			}
		})
	}
}
