package serving_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/gin-gonic/gin"

	"binnacle/libs/serving"
	"binnacle/libs/serving/exchange"
)

// detachedFixture serves /lasting, whose response outlives its handler, and other paths.
type detachedFixture struct {
	*testServer
	returned chan http.ResponseWriter // the handler has returned
	end      chan func(failure any)

	mu    sync.Mutex
	ended []string // recorded calls of AtEnd functions
}

// startDetached starts the server. after is called when a handler has called Detach.
func startDetached(t *testing.T, after func()) *detachedFixture {
	l := &detachedFixture{returned: make(chan http.ResponseWriter, 1), end: make(chan func(any), 1)}
	record := func(what string) func(any) {
		return func(failure any) {
			l.mu.Lock()
			defer l.mu.Unlock()
			if failure != nil {
				what += " with " + failure.(error).Error()
			}
			l.ended = append(l.ended, what)
		}
	}
	inner := func(w http.ResponseWriter) bool {
		defer exchange.AtEnd(w, record("inner"))
		w.Header().Set("Content-Type", "text/lasting")
		w.WriteHeader(http.StatusOK)
		_, _ = io.WriteString(w, "begun\n")
		w.(http.Flusher).Flush()
		return exchange.Detach(w, func(end func(any)) {
			l.end <- end
			l.returned <- w
		})
	}
	l.testServer = startServer(t, testOptions(t), func(r *http.Request) bool { return r.URL.Path == "/lasting" },
		func(*serving.Server) http.Handler {
			engine, err := serving.NewEngine(discardLogger())
			if err != nil {
				t.Fatal(err)
			}
			engine.NoRoute(func(ctx *gin.Context) {
				ctx.Status(http.StatusOK)
				if ctx.Request.URL.Path != "/lasting" {
					_, _ = io.WriteString(ctx.Writer, "short")
					return
				}
				w := exchange.DetachableWriter(ctx.Writer)
				defer exchange.AtEnd(ctx.Writer, record("outer"))
				if lasts := inner(w); !lasts {
					_, _ = io.WriteString(w, "does not last\n")
				} else {
					after()
				}
				ctx.Writer.WriteHeaderNow()
			})
			return engine
		})
	return l
}

// endedSoFar returns the recorded calls.
func (l *detachedFixture) endedSoFar() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.ended)
}

// request starts to read a detached response.
func (l *detachedFixture) request(t *testing.T) (*http.Response, *bufio.Reader) {
	t.Helper()
	resp, err := l.client.Get(l.url + "/lasting")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	body := bufio.NewReader(resp.Body)
	if line, err := body.ReadString('\n'); line != "begun\n" || resp.Header.Get("Content-Type") != "text/lasting" {
		t.Fatalf("got first line %q, %v, headers %q, want begun as text/lasting", line, err, resp.Header)
	}
	return resp, body
}

// TestDetachedResponseContinues checks that a response continues after its handler has returned,
// that the functions of AtEnd run when it ends, and that a shutdown waits for it.
func TestDetachedResponseContinues(t *testing.T) {
	detachedFixture := startDetached(t, func() {})
	_, body := detachedFixture.request(t)
	w, end := <-detachedFixture.returned, <-detachedFixture.end
	for range 3 { // they reuse the engine's writers
		if _, text := detachedFixture.get(t, "/short"); text != "short" {
			t.Errorf("another response = %q, want short", text)
		}
	}
	if ended := detachedFixture.endedSoFar(); len(ended) > 0 {
		t.Errorf("before the response: got %q ended, want none", ended)
	}
	_, _ = io.WriteString(w, "more\n")
	w.(http.Flusher).Flush()
	if line, err := body.ReadString('\n'); line != "more\n" {
		t.Errorf("line = %q, %v, want more", line, err)
	}
	detachedFixture.stop()
	<-detachedFixture.Timeline().NotAcceptingNewRequest.Signaled()
	_, _ = io.WriteString(w, "last")
	end(nil)
	if remaining, err := io.ReadAll(body); string(remaining) != "last" || err != nil {
		t.Errorf("rest = %q, %v, want last", remaining, err)
	}
	if ended := detachedFixture.endedSoFar(); !slices.Equal(ended, []string{"inner", "outer"}) {
		t.Errorf("got %q ended, want inner, then outer", ended)
	}
}

// TestSendFlushesAtOnce checks that Send delivers data of any size after earlier writes, over
// HTTP/1.1 and HTTP/2.
func TestSendFlushesAtOnce(t *testing.T) {
	detachedFixture := startDetached(t, func() {})
	old := startServer(t, testOptions(t), func(r *http.Request) bool { return true }, func(*serving.Server) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			detachedFixture.returned <- w
			<-r.Context().Done()
		})
	})
	old.client.Transport.(*http.Transport).Protocols = new(http.Protocols)
	old.client.Transport.(*http.Transport).Protocols.SetHTTP1(true)
	large := strings.Repeat("x", 1<<20) + "\n"
	for name, r := range map[string]*testServer{"HTTP/2": detachedFixture.testServer, "HTTP/1.1": old} {
		ctx, cancel := context.WithCancel(t.Context())
		started := make(chan *http.Response, 1)
		go func() {
			req, _ := http.NewRequestWithContext(ctx, http.MethodGet, r.url+"/lasting", nil)
			resp, err := r.client.Do(req)
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			started <- resp
		}()
		w := <-detachedFixture.returned
		sent := make(chan error, 1)
		go func() {
			_, _ = io.WriteString(w, "written ")
			sent <- errors.Join(exchange.Send(w, []byte("sent\n")), exchange.Send(w, []byte(large)),
				exchange.Send(w, []byte("short\n")))
		}()
		resp := <-started
		if !strings.HasPrefix(resp.Proto, name) {
			t.Errorf("%s: protocol is %s, want one that begins with %q", name, resp.Proto, name)
		}
		body := bufio.NewReader(resp.Body)
		if name == "HTTP/2" {
			_, _ = body.ReadString('\n')
		}
		for _, want := range []string{"written sent\n", large, "short\n"} {
			if line, err := body.ReadString('\n'); line != want {
				t.Errorf("%s: received %d bytes, %v; want %d", name, len(line), err, len(want))
			}
		}
		if err := <-sent; err != nil {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
		resp.Body.Close()
	}
	(<-detachedFixture.end)(nil)
}

// TestDetachedResponseFails checks that a failure after the handler has returned aborts the
// response and reaches the functions of AtEnd.
func TestDetachedResponseFails(t *testing.T) {
	detachedFixture := startDetached(t, func() {})
	_, body := detachedFixture.request(t)
	<-detachedFixture.returned
	(<-detachedFixture.end)(errors.New("failure"))
	if remaining, err := io.ReadAll(body); err == nil {
		t.Errorf("the response is complete with %q, want an error", remaining)
	}
	if ended := detachedFixture.endedSoFar(); !slices.Equal(ended, []string{"inner with failure", "outer with failure"}) {
		t.Errorf("got %q ended, want inner, then outer, with the failure", ended)
	}
}

// TestPanicAfterDetachFailsResponse checks that a response is aborted if its handler panics after
// Detach.
func TestPanicAfterDetachFailsResponse(t *testing.T) {
	detachedFixture := startDetached(t, func() { panic(errors.New("after all")) })
	_, body := detachedFixture.request(t)
	if remaining, err := io.ReadAll(body); err == nil {
		t.Errorf("the response is complete with %q, want an error", remaining)
	}
	select {
	case <-detachedFixture.returned:
		t.Error("the handler returned, want it to panic")
	default:
	}
	if ended := detachedFixture.endedSoFar(); !slices.Equal(ended, []string{"inner with after all", "outer with after all"}) {
		t.Errorf("got %q ended, want inner, then outer, with the late failure", ended)
	}
}

// TestHTTP1ResponseCannotDetach checks that Detach returns false over HTTP/1.1.
func TestHTTP1ResponseCannotDetach(t *testing.T) {
	detachedFixture := startDetached(t, func() { t.Error("Detach() = true, want false") })
	conn := dial(t, detachedFixture.testServer, "http/1.1")
	if _, err := io.WriteString(conn, "GET /lasting HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	response, err := io.ReadAll(conn)
	if err != nil || !strings.Contains(string(response), "does not last") ||
		strings.Count(string(response), "HTTP/1.1 200") != 1 {
		t.Errorf("%v: %s, want one response with 200 that does not last", err, response)
	}
	if ended := detachedFixture.endedSoFar(); !slices.Equal(ended, []string{"inner", "outer"}) {
		t.Errorf("got %q ended, want inner, then outer", ended)
	}
}

// TestPanicAtEndFailsResponse checks that a panic in a function of AtEnd aborts the response, and
// that the other functions get the failure.
func TestPanicAtEndFailsResponse(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		more func(end func(any), ended chan<- struct{})
		want string // the failure that the other functions get
	}{
		"ended in more": {more: func(end func(any), ended chan<- struct{}) { end(nil); close(ended) }, want: "at the end"},
		"ended by another goroutine": {more: func(end func(any), ended chan<- struct{}) {
			go func() { end(nil); close(ended) }()
		}, want: "at the end"},
		"ended twice": {more: func(end func(any), ended chan<- struct{}) {
			end(errors.New("first"))
			end(nil)
			close(ended)
		}, want: "first"},
		"panic in more": {
			more: func(_ func(any), ended chan<- struct{}) { close(ended); panic(errors.New("going on")) },
			want: "going on",
		},
	} {
		t.Run(name, func(t *testing.T) {
			failures, ended := make(chan any, 2), make(chan struct{})
			testServer := startServer(t, testOptions(t), func(*http.Request) bool { return true }, func(*serving.Server) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					defer exchange.AtEnd(w, func(failure any) { failures <- failure })
					defer exchange.AtEnd(w, func(any) { panic(errors.New("at the end")) })
					w = exchange.DetachableWriter(w)
					w.(http.Flusher).Flush()
					exchange.Detach(w, func(end func(any)) { test.more(end, ended) })
				})
			})
			resp, err := testServer.client.Get(testServer.url + "/x")
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if _, err := io.ReadAll(resp.Body); err == nil {
				t.Error("reading the response = nil, want an error about its incomplete body")
			}
			<-ended
			if failure, _ := (<-failures).(error); failure == nil || failure.Error() != test.want {
				t.Errorf("failure = %v, want %s", failure, test.want)
			}
			testServer.stop() // must not wait
			if err := <-testServer.done; err != nil || len(failures) > 0 {
				t.Errorf("Run() = %v, %d more failures, want none", err, len(failures))
			}
			testServer.done <- nil
		})
	}
}

// TestWriterOfOtherServerCannotDetach checks that DetachableWriter and Detach do nothing for
// writers of other servers, and that Send and AtEnd work.
func TestWriterOfOtherServerCannotDetach(t *testing.T) {
	for name, hide := range map[string]bool{"that flush": false, "that do not": true} {
		t.Run(name, func(t *testing.T) {
			below := httptest.NewRecorder()
			w := http.ResponseWriter(below)
			if hide {
				w = struct{ http.ResponseWriter }{w}
			}
			if exchange.DetachableWriter(w) != w || exchange.Detach(w, nil) {
				t.Errorf("writer hidden: %t: DetachableWriter() or Detach() accepted it, want it rejected", hide)
			}
			if err := exchange.Send(w, []byte("text")); err != nil || below.Body.String() != "text" || below.Flushed == hide {
				t.Errorf("got %q sent, %v, flushed: %t, want text, flushed: %t", below.Body, err, below.Flushed, !hide)
			}
			ended := false
			exchange.AtEnd(w, func(failure any) { ended = failure == nil })
			if !ended {
				t.Errorf("writer hidden: %t: AtEnd() did not call its function with nil, want a call", hide)
			}
		})
	}
	if err := exchange.Send(failingWriter{httptest.NewRecorder()}, nil); !errors.Is(err, http.ErrBodyNotAllowed) {
		t.Errorf("Send() = %v, want http.ErrBodyNotAllowed", err)
	}
}

// failingWriter fails every write, and must not be flushed.
type failingWriter struct{ http.ResponseWriter }

func (failingWriter) Write([]byte) (int, error) { return 0, http.ErrBodyNotAllowed }
func (failingWriter) Flush()                    { panic("Flush was called") }

// TestPanicBeforeDetachGets500 checks that a panic between DetachableWriter and the first write
// gets a 500 response, and that Detach needs DetachableWriter.
func TestPanicBeforeDetachGets500(t *testing.T) {
	testServer := startServer(t, testOptions(t), nil, func(*serving.Server) http.Handler {
		return recovering(t, func(w http.ResponseWriter, _ *http.Request) {
			if exchange.Detach(w, nil) {
				t.Error("Detach() = true, want false")
			}
			exchange.DetachableWriter(w)
			panic("before all")
		})
	})
	if resp, _ := testServer.get(t, "/x"); resp.StatusCode != http.StatusInternalServerError || resp.ProtoMajor != 2 {
		t.Errorf("got %s %s, want 500", resp.Proto, resp.Status)
	}
	conn := dial(t, testServer, "http/1.1")
	if _, err := io.WriteString(conn, "GET /x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if response, err := io.ReadAll(conn); err != nil || !strings.HasPrefix(string(response), "HTTP/1.1 500 ") {
		t.Errorf("%v: %s, want no error, string(response) prefix \"HTTP/1.1 500 \"", err, response)
	}
}
