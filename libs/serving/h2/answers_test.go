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

// whole reads an answer until its end, and tells it; not its date, which all but those that others
// follow have to have.
func (c *unread) whole(id uint32) string {
	c.t.Helper()
	var told []string
	var data []byte
	tell := func() {
		if len(data) > 20 {
			told = append(told, fmt.Sprint(len(data), " bytes"))
		} else if len(data) > 0 {
			told = append(told, fmt.Sprintf("%q", data))
		}
		data = nil
	}
	for {
		f, err := c.ReadFrame()
		if err != nil {
			return fmt.Sprint(told, err)
		}
		if away, ok := f.(*http2.GoAwayFrame); ok {
			told = append(told, "away "+away.ErrCode.String())
		}
		if f.Header().StreamID != id {
			continue
		}
		switch f := f.(type) {
		case *http2.MetaHeadersFrame:
			tell()
			var names []string
			for _, field := range f.Fields {
				switch field.Name {
				case ":status":
					told = append(told, field.Value)
				case "date":
					if field.Value == "then" {
						names = append(names, "date=then")
					}
				default:
					names = append(names, field.Name+"="+field.Value)
				}
			}
			slices.Sort(names)
			told = append(told, names...)
		case *http2.DataFrame:
			data = append(data, f.Data()...)
		case *http2.RSTStreamFrame:
			tell()
			return strings.Join(append(told, "reset "+f.ErrCode.String()), "; ")
		default:
			continue
		}
		if f.Header().Flags.Has(http2.FlagDataEndStream) {
			tell()
			return strings.Join(told, "; ")
		}
	}
}

const aText, aLength = "content-type=text/plain; charset=utf-8", "content-length="

// written writes, and tells what does not happen as is wanted.
func written(t *testing.T, w http.ResponseWriter, text string, want error) {
	if n, err := w.Write([]byte(text)); !errors.Is(err, want) || err == nil && n != len(text) {
		t.Errorf("%.20q is written: %d bytes, %v; want %v", text, n, err, want)
	}
}

// answered has a handler answer, which the client is to hear of.
type answered struct {
	handler func(t *testing.T, w http.ResponseWriter)
	want    string
}

func hear(t *testing.T, method string, all map[string]answered) {
	for name, a := range all {
		t.Run(name, func(t *testing.T) {
			over := make(chan struct{})
			c := dialUnread(t, func(w http.ResponseWriter, _ *http.Request) {
				defer close(over)
				a.handler(t, w)
			})
			c.ask(1, endsStream, fields(":method: "+method, ":scheme: https", ":authority: a", ":path: /"))
			if got := c.whole(1); got != a.want {
				t.Errorf("the client hears\n%s, want\n%s", got, a.want)
			}
			c.lives()
			<-over
		})
	}
}

// TestHeadersOfAnswers are those that an answer may have.
func TestHeadersOfAnswers(t *testing.T) {
	set := func(name string, values ...string) func(*testing.T, http.ResponseWriter) {
		return func(_ *testing.T, w http.ResponseWriter) { w.Header()[name] = values }
	}
	hear(t, "GET", map[string]answered{
		"none":                 {func(*testing.T, http.ResponseWriter) {}, "200; content-length=0"},
		"some":                 {set("X", "a", "b"), "200; content-length=0; x=a; x=b"},
		"a date":               {set("Date", "then"), "200; content-length=0; date=then"},
		"a bad name":           {set("X y", "a"), "200; content-length=0"},
		"a bad value":          {set("X", "a\nb", "c"), "200; content-length=0; x=c"},
		"those of a hop":       {set("Keep-Alive", "5"), "200; content-length=0"},
		"an encoding":          {set("Transfer-Encoding", "chunked"), "200; content-length=0"},
		"an upgrade":           {set("Upgrade", "x"), "200; content-length=0"},
		"to stay":              {set("Connection", "keep-alive"), "200; content-length=0"},
		"to do nothing":        {set("Connection"), "200; content-length=0"},
		"a length that is not": {set("Content-Length", "x"), "200; content-length=0"},
		"no type":              {func(t *testing.T, w http.ResponseWriter) { w.Header()["Content-Type"] = nil; written(t, w, "a", nil) }, "200; " + aLength + `1; "a"`},
		"packed": {func(t *testing.T, w http.ResponseWriter) {
			w.Header().Set("Content-Encoding", "gzip")
			written(t, w, "a", nil)
		}, "200; content-encoding=gzip; " + aLength + `1; "a"`},
		"not packed": {func(t *testing.T, w http.ResponseWriter) {
			w.Header().Set("Content-Encoding", "")
			written(t, w, "a", nil)
		}, "200; content-encoding=; " + aLength + "1; " + aText + `; "a"`},
		"one before": {func(_ *testing.T, w http.ResponseWriter) {
			w.Header().Set("Link", "x")
			w.Header().Set("Content-Length", "0")
			w.WriteHeader(http.StatusEarlyHints)
			w.Header().Del("Link")
		}, "103; link=x; 200; content-length=0"},
		"two": {func(_ *testing.T, w http.ResponseWriter) {
			w.WriteHeader(http.StatusCreated)
			w.WriteHeader(http.StatusAccepted)
		}, "201; content-length=0"},
		"too late": {func(_ *testing.T, w http.ResponseWriter) {
			w.WriteHeader(http.StatusCreated)
			w.Header().Set("X", "a")
		}, "201; content-length=0"},
		"no status": {func(t *testing.T, w http.ResponseWriter) {
			for _, code := range []int{0, 99, 1000} {
				func() {
					defer func() {
						if recover() == nil {
							t.Errorf("%d is a status", code)
						}
					}()
					w.WriteHeader(code)
				}()
			}
			w.WriteHeader(999)
		}, "999; content-length=0"},
	})
	c := dialUnread(t, func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Connection", "close") })
	c.ask(1, endsStream, asking())
	if got := c.whole(1); got != "away NO_ERROR; 200; content-length=0" {
		t.Errorf("who is to go elsewhere hears %s", got)
	}
}

// TestBodiesOfAnswers come as they were written, to who may have one.
func TestBodiesOfAnswers(t *testing.T) {
	long := strings.Repeat("x", 20_000)
	flush := func(t *testing.T, w http.ResponseWriter) {
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
	}
	text := func(t *testing.T, w http.ResponseWriter) { written(t, w, "text", nil) }
	status := func(code int) func(t *testing.T, w http.ResponseWriter) {
		return func(t *testing.T, w http.ResponseWriter) {
			w.WriteHeader(code)
			written(t, w, "text", http.ErrBodyNotAllowed)
		}
	}
	declared := func(n string, parts ...string) func(t *testing.T, w http.ResponseWriter) {
		return func(t *testing.T, w http.ResponseWriter) {
			w.Header().Set("Content-Length", n)
			for _, part := range parts {
				written(t, w, part, nil)
			}
		}
	}
	hear(t, "GET", map[string]answered{
		"short":        {text, "200; " + aLength + "4; " + aText + `; "text"`},
		"no content":   {status(http.StatusNoContent), "204"},
		"not modified": {status(http.StatusNotModified), "304"},
		"too much": {func(t *testing.T, w http.ResponseWriter) {
			declared("4", "tex")(t, w)
			written(t, w, "ts", http.ErrContentLength)
			written(t, w, "t", nil)
		}, "200; " + aLength + "4; " + aText + `; "text"`},
		"too little":   {declared("5", "text"), "200; " + aLength + "5; " + aText + `; "text"; reset INTERNAL_ERROR`},
		"in parts":     {func(t *testing.T, w http.ResponseWriter) { text(t, w); flush(t, w); text(t, w) }, "200; " + aText + `; "texttext"`},
		"flushed":      {func(t *testing.T, w http.ResponseWriter) { flush(t, w); flush(t, w); text(t, w) }, `200; "text"`},
		"flushed more": {func(t *testing.T, w http.ResponseWriter) { text(t, w); flush(t, w); flush(t, w) }, "200; " + aText + `; "text"`},
		"long":         {func(t *testing.T, w http.ResponseWriter) { text(t, w); written(t, w, long, nil); text(t, w) }, "200; " + aText + `; 20008 bytes`},
		"long alone":   {declared("20000", long), "200; " + aLength + "20000; " + aText + "; 20000 bytes"},
		"uncounted":    {func(t *testing.T, w http.ResponseWriter) { written(t, w, long[:4097], nil) }, "200; " + aText + "; 4097 bytes"},
		"counted":      {func(t *testing.T, w http.ResponseWriter) { written(t, w, long[:4096], nil) }, "200; " + aLength + "4096; " + aText + "; 4096 bytes"},
		"sent": {func(t *testing.T, w http.ResponseWriter) {
			s := w.(interface{ Send([]byte) error })
			for range 2 {
				if err := s.Send([]byte("text")); err != nil {
					t.Error(err)
				}
			}
			written(t, w, "a", nil)
			if err := s.Send([]byte("b")); err != nil {
				t.Error(err)
			}
		}, "200; " + aText + `; "texttextab"`},
		"sent for nothing": {func(t *testing.T, w http.ResponseWriter) {
			w.WriteHeader(http.StatusNoContent)
			flush(t, w)
			if err := w.(interface{ Send([]byte) error }).Send([]byte("text")); !errors.Is(err, http.ErrBodyNotAllowed) {
				t.Error(err)
			}
		}, "204"},
		"sent too much": {func(t *testing.T, w http.ResponseWriter) {
			declared("4", "text")(t, w)
			flush(t, w)
			if err := w.(interface{ Send([]byte) error }).Send([]byte("s")); !errors.Is(err, http.ErrContentLength) {
				t.Error(err)
			}
		}, "200; " + aLength + "4; " + aText + `; "text"`},
	})
	hear(t, "HEAD", map[string]answered{
		"no body of one":       {text, "200; " + aLength + "4; " + aText},
		"a body of no length":  {func(*testing.T, http.ResponseWriter) {}, "200"},
		"no body of a long":    {func(t *testing.T, w http.ResponseWriter) { written(t, w, long, nil) }, "200; " + aText},
		"no body of so many":   {declared("5"), "200; content-length=5"},
		"no body that flushes": {func(t *testing.T, w http.ResponseWriter) { text(t, w); flush(t, w); text(t, w) }, "200; " + aText},
	})
}

// TestTrailersOfAnswers come after them.
func TestTrailersOfAnswers(t *testing.T) {
	long := strings.Repeat("x", 20_000)
	hear(t, "GET", map[string]answered{
		"declared": {func(t *testing.T, w http.ResponseWriter) {
			w.Header().Set("Trailer", "X-Sum, Y")
			w.Header().Set("Content-Length", "20000")
			written(t, w, long, nil)
			w.Header().Set("X-Sum", "1")
		}, "200; content-length=20000; " + aText + "; trailer=X-Sum, Y; 20000 bytes; x-sum=1"},
		"not declared": {func(t *testing.T, w http.ResponseWriter) {
			written(t, w, "text", nil)
			w.Header().Set(http.TrailerPrefix+"X-Sum", "1")
		}, "200; content-length=4; " + aText + `; "text"; x-sum=1`},
		"of nothing": {func(_ *testing.T, w http.ResponseWriter) {
			w.Header().Set("Trailer", "X-Sum")
			w.WriteHeader(http.StatusOK)
			w.Header().Set("X-Sum", "1")
		}, "200; content-length=0; trailer=X-Sum; x-sum=1"},
		"after the handler": {func(t *testing.T, w http.ResponseWriter) {
			w.Header().Set("Trailer", "X-Sum")
			w.Header().Set("X-Sum", "1")
			_ = http.NewResponseController(w).Flush()
			w.(lasting).Last(func(end func(any)) { end(nil) })
		}, "200; trailer=X-Sum; x-sum=1; x-sum=1"},
		"set after the handler": {func(t *testing.T, w http.ResponseWriter) {
			w.Header().Set("X-Sum", "2")
			_ = http.NewResponseController(w).Flush()
			w.(lasting).Last(func(end func(any)) { w.Header().Set(http.TrailerPrefix+"X-Sum", "1"); end(nil) })
		}, "200; x-sum=2; x-sum=1"},
		"all after the handler": {func(t *testing.T, w http.ResponseWriter) {
			w.Header().Set("X", "2")
			w.(lasting).Last(func(end func(any)) { w.Header().Set("Y", "1"); end(nil) })
		}, "200; content-length=0; x=2; y=1"},
	})
}

// TestWritersAfterTheHandler take nothing.
func TestWritersAfterTheHandler(t *testing.T) {
	kept := make(chan http.ResponseWriter, 1)
	c := dialUnread(t, func(w http.ResponseWriter, _ *http.Request) { kept <- w })
	for id := uint32(1); id < 5; id += 2 {
		c.ask(id, 0, asking()) // the handler's end is known by the reset
		if got := c.whole(id); got != "200; content-length=0" {
			t.Errorf("it is answered %s", got)
		}
		if got := c.hears(); got != fmt.Sprint("reset ", id, " NO_ERROR") {
			t.Errorf("then comes %s", got)
		}
		c.lives()
		w := <-kept
		w.WriteHeader(http.StatusEarlyHints)
		if n, err := w.Write([]byte("text")); err == nil || n > 0 {
			t.Errorf("%d bytes are written", n)
		}
		if http.NewResponseController(w).Flush() == nil || w.(interface{ Send([]byte) error }).Send(nil) == nil {
			t.Error("it is flushed")
		}
	}
}

// TestWhoWaitsToSendIsAsked once, as long as nothing is answered.
func TestWhoWaitsToSendIsAsked(t *testing.T) {
	for name, c := range map[string]struct {
		first string // what is done before the body is read
		want  []string
	}{"at first": {"", []string{"100", "200"}}, "too late": {"flush", []string{"200"}}} {
		t.Run(name, func(t *testing.T) {
			client := dialUnread(t, func(w http.ResponseWriter, r *http.Request) {
				if c.first != "" {
					_ = http.NewResponseController(w).Flush()
				}
				for range 2 {
					_, _ = r.Body.Read(make([]byte, 1))
				}
			})
			client.ask(1, 0, asking("expect: 100-continue"))
			client.must(client.WriteData(1, true, []byte("ab")))
			if got := client.answers(1); !slices.Equal(got, c.want) {
				t.Errorf("the answers are %v, want %v", got, c.want)
			}
		})
	}
}
