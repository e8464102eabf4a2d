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
)

// lasting serves an answer that outlasts its handler, and others.
type lasting struct {
	*running
	returned chan http.ResponseWriter // the handler has
	end      chan func(failure any)

	mu   sync.Mutex
	told []string // what was left to the end
}

// startLasting serves; after is called when a handler has left all to Last.
func startLasting(t *testing.T, after func()) *lasting {
	l := &lasting{returned: make(chan http.ResponseWriter, 1), end: make(chan func(any), 1)}
	tell := func(what string) func(any) {
		return func(failure any) {
			l.mu.Lock()
			defer l.mu.Unlock()
			if failure != nil {
				what += " with " + failure.(error).Error()
			}
			l.told = append(l.told, what)
		}
	}
	inner := func(w http.ResponseWriter) bool {
		defer serving.AtEnd(w, tell("inner"))
		w.Header().Set("Content-Type", "text/lasting")
		w.WriteHeader(http.StatusOK)
		_, _ = io.WriteString(w, "begun\n")
		w.(http.Flusher).Flush()
		return serving.Last(w, func(end func(any)) {
			l.end <- end
			l.returned <- w
		})
	}
	l.running = start(t, testOptions(t), func(r *http.Request) bool { return r.URL.Path == "/lasting" }, func(*serving.Server) http.Handler {
		engine, err := serving.NewEngine(silent())
		if err != nil {
			t.Fatal(err)
		}
		engine.NoRoute(func(c *gin.Context) {
			c.Status(http.StatusOK)
			if c.Request.URL.Path != "/lasting" {
				_, _ = io.WriteString(c.Writer, "short")
				return
			}
			w := serving.Apart(c.Writer)
			defer serving.AtEnd(c.Writer, tell("outer"))
			if lasts := inner(w); !lasts {
				_, _ = io.WriteString(w, "does not last\n")
			} else {
				after()
			}
			c.Writer.WriteHeaderNow()
		})
		return engine
	})
	return l
}

// left is what was told at the end.
func (l *lasting) left() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.told)
}

// ask begins to read a lasting answer.
func (l *lasting) ask(t *testing.T) (*http.Response, *bufio.Reader) {
	t.Helper()
	resp, err := l.client.Get(l.url + "/lasting")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	body := bufio.NewReader(resp.Body)
	if line, err := body.ReadString('\n'); line != "begun\n" || resp.Header.Get("Content-Type") != "text/lasting" {
		t.Fatalf("began with %q, %v, %q", line, err, resp.Header)
	}
	return resp, body
}

// TestAnswersThatLast: an answer goes on after its handler has returned, beside others of the same
// engine, and ends when it is said to; what comes at the end does then, as if the handler had
// lasted. The server waits for it.
func TestAnswersThatLast(t *testing.T) {
	l := startLasting(t, func() {})
	_, body := l.ask(t)
	w, end := <-l.returned, <-l.end
	for range 3 { // the engine's writers are theirs now
		if _, text := l.get(t, "/short"); text != "short" {
			t.Errorf("others are answered with %q", text)
		}
	}
	if told := l.left(); len(told) > 0 {
		t.Errorf("%q has ended before the answer", told)
	}
	_, _ = io.WriteString(w, "more\n")
	w.(http.Flusher).Flush()
	if line, err := body.ReadString('\n'); line != "more\n" {
		t.Errorf("then came %q, %v", line, err)
	}
	l.stop()
	<-l.Timeline().NotAcceptingNewRequest.Signaled()
	_, _ = io.WriteString(w, "last")
	end(nil)
	if rest, err := io.ReadAll(body); string(rest) != "last" || err != nil {
		t.Errorf("it ended with %q, %v", rest, err)
	}
	if told := l.left(); !slices.Equal(told, []string{"inner", "outer"}) {
		t.Errorf("at the end %q", told)
	}
}

// TestWhatIsSent arrives at once, behind what was written before, whatever its size and the version
// of HTTP.
func TestWhatIsSent(t *testing.T) {
	l := startLasting(t, func() {})
	old := start(t, testOptions(t), func(r *http.Request) bool { return true }, func(*serving.Server) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			l.returned <- w
			<-r.Context().Done()
		})
	})
	old.client.Transport.(*http.Transport).Protocols = new(http.Protocols)
	old.client.Transport.(*http.Transport).Protocols.SetHTTP1(true)
	large := strings.Repeat("x", 1<<20) + "\n"
	for name, r := range map[string]*running{"HTTP/2": l.running, "HTTP/1.1": old} {
		ctx, cancel := context.WithCancel(t.Context())
		began := make(chan *http.Response, 1)
		go func() {
			req, _ := http.NewRequestWithContext(ctx, http.MethodGet, r.url+"/lasting", nil)
			resp, err := r.client.Do(req)
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			began <- resp
		}()
		w := <-l.returned
		sent := make(chan error, 1)
		go func() {
			_, _ = io.WriteString(w, "written ")
			sent <- errors.Join(serving.Send(w, []byte("sent\n")), serving.Send(w, []byte(large)), serving.Send(w, []byte("short\n")))
		}()
		resp := <-began
		if !strings.HasPrefix(resp.Proto, name) {
			t.Errorf("%s is %s", name, resp.Proto)
		}
		body := bufio.NewReader(resp.Body)
		if name == "HTTP/2" {
			_, _ = body.ReadString('\n')
		}
		for _, want := range []string{"written sent\n", large, "short\n"} {
			if line, err := body.ReadString('\n'); line != want {
				t.Errorf("%s: %d bytes arrive, %v; want %d", name, len(line), err, len(want))
			}
		}
		if err := <-sent; err != nil {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
		resp.Body.Close()
	}
	(<-l.end)(nil)
}

// TestAnswersThatFailLater: who goes on with an answer may fail, which the client and all who wait
// for the end hear of.
func TestAnswersThatFailLater(t *testing.T) {
	l := startLasting(t, func() {})
	_, body := l.ask(t)
	<-l.returned
	(<-l.end)(errors.New("failure"))
	if rest, err := io.ReadAll(body); err == nil {
		t.Errorf("the answer is whole, with %q", rest)
	}
	if told := l.left(); !slices.Equal(told, []string{"inner with failure", "outer with failure"}) {
		t.Errorf("at the end %q", told)
	}
}

// TestHandlersThatFailAfterAll: nobody goes on with the answer of a handler that has panicked.
func TestHandlersThatFailAfterAll(t *testing.T) {
	l := startLasting(t, func() { panic(errors.New("after all")) })
	_, body := l.ask(t)
	if rest, err := io.ReadAll(body); err == nil {
		t.Errorf("the answer is whole, with %q", rest)
	}
	select {
	case <-l.returned:
		t.Error("it goes on")
	default:
	}
	if told := l.left(); !slices.Equal(told, []string{"inner with after all", "outer with after all"}) {
		t.Errorf("at the end %q", told)
	}
}

// TestOtherAnswersDoNotLast: over HTTP/1.1 the handler goes on itself.
func TestOtherAnswersDoNotLast(t *testing.T) {
	l := startLasting(t, func() { t.Error("it lasts") })
	conn := dial(t, l.running, "http/1.1")
	if _, err := io.WriteString(conn, "GET /lasting HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(conn)
	if err != nil || !strings.Contains(string(answer), "does not last") || strings.Count(string(answer), "HTTP/1.1 200") != 1 {
		t.Errorf("%v: %s", err, answer)
	}
	if told := l.left(); !slices.Equal(told, []string{"inner", "outer"}) {
		t.Errorf("at the end %q", told)
	}
}

// TestWhatFailsAtTheEnd fails the answer and nothing else, whoever ends it.
func TestWhatFailsAtTheEnd(t *testing.T) {
	for name, c := range map[string]struct {
		more func(end func(any), ended chan<- struct{})
		want string // the failure that others hear of
	}{
		"ended by the handler's own": {func(end func(any), ended chan<- struct{}) { end(nil); close(ended) }, "at the end"},
		"ended by another": {func(end func(any), ended chan<- struct{}) {
			go func() { end(nil); close(ended) }()
		}, "at the end"},
		"ended twice": {func(end func(any), ended chan<- struct{}) {
			end(errors.New("first"))
			end(nil)
			close(ended)
		}, "first"},
		"who goes on fails": {func(_ func(any), ended chan<- struct{}) { close(ended); panic(errors.New("going on")) }, "going on"},
	} {
		t.Run(name, func(t *testing.T) {
			told, ended := make(chan any, 2), make(chan struct{})
			r := start(t, testOptions(t), func(*http.Request) bool { return true }, func(*serving.Server) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					defer serving.AtEnd(w, func(failure any) { told <- failure })
					defer serving.AtEnd(w, func(any) { panic(errors.New("at the end")) })
					w = serving.Apart(w)
					w.(http.Flusher).Flush()
					serving.Last(w, func(end func(any)) { c.more(end, ended) })
				})
			})
			resp, err := r.client.Get(r.url + "/x")
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if _, err := io.ReadAll(resp.Body); err == nil {
				t.Error("the answer is whole")
			}
			<-ended
			if failure, _ := (<-told).(error); failure == nil || failure.Error() != c.want {
				t.Errorf("others hear of %v", failure)
			}
			r.stop() // nothing is waited for
			if err := <-r.done; err != nil || len(told) > 0 {
				t.Errorf("%v, told %d times more", err, len(told))
			}
			r.done <- nil
		})
	}
}

// TestWritersOfOthers: who answers with a writer of another server has no answers that last, and all
// else.
func TestWritersOfOthers(t *testing.T) {
	for name, hide := range map[string]bool{"that flush": false, "that do not": true} {
		t.Run(name, func(t *testing.T) {
			below := httptest.NewRecorder()
			w := http.ResponseWriter(below)
			if hide {
				w = struct{ http.ResponseWriter }{w}
			}
			if serving.Apart(w) != w || serving.Last(w, nil) {
				t.Error("it is taken for one of ours")
			}
			if err := serving.Send(w, []byte("text")); err != nil || below.Body.String() != "text" || below.Flushed == hide {
				t.Errorf("%v; %q is sent, flushed %t", err, below.Body, below.Flushed)
			}
			ended := false
			serving.AtEnd(w, func(failure any) { ended = failure == nil })
			if !ended {
				t.Error("what comes at the end does not")
			}
		})
	}
	if err := serving.Send(failing{httptest.NewRecorder()}, nil); !errors.Is(err, http.ErrBodyNotAllowed) {
		t.Errorf("a write that fails is told as %v", err)
	}
}

// failing is a writer that takes nothing, and must not be flushed.
type failing struct{ http.ResponseWriter }

func (failing) Write([]byte) (int, error) { return 0, http.ErrBodyNotAllowed }
func (failing) Flush()                    { panic("it is flushed") }

// TestHandlersThatFailBeforeAll: who has a writer that is Apart, and panics before anything is written,
// is answered for, whatever the version of HTTP; and nothing lasts that is not Apart.
func TestHandlersThatFailBeforeAll(t *testing.T) {
	r := start(t, testOptions(t), nil, func(*serving.Server) http.Handler {
		return serving.WithRecovery(silent(), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if serving.Last(w, nil) {
				t.Error("it lasts")
			}
			serving.Apart(w)
			panic("before all")
		}))
	})
	if resp, _ := r.get(t, "/x"); resp.StatusCode != http.StatusInternalServerError || resp.ProtoMajor != 2 {
		t.Errorf("it is answered %s %s", resp.Proto, resp.Status)
	}
	conn := dial(t, r, "http/1.1")
	if _, err := io.WriteString(conn, "GET /x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if answer, err := io.ReadAll(conn); err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 500 ") {
		t.Errorf("%v: %s", err, answer)
	}
}
