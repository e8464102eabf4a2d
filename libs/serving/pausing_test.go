package serving_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"binnacle/libs/serving"
)

// TestHandlersPauseWhileNobodyReads: the handler hears of a client that takes nothing,
// in the middle of a write, and says whether the write goes on after that.
func TestHandlersPauseWhileNobodyReads(t *testing.T) {
	answer, over := bytes.Repeat([]byte("x"), 32<<20), errors.New("over")
	for name, c := range map[string]struct {
		proto  string
		pause  bool  // else the client is cut
		resume error // becomes the write's
	}{
		"HTTP/1 that goes on":     {"http/1.1", true, nil},
		"HTTP/2 that goes on":     {"h2", true, nil},
		"HTTP/1 that may not":     {"http/1.1", true, over},
		"HTTP/2 that may not":     {"h2", true, over},
		"HTTP/1 that is too many": {"http/1.1", false, nil},
		"HTTP/2 that is too many": {"h2", false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var pauses, resumes atomic.Int32
			paused := make(chan struct{}, 1)
			o := testOptions(t)
			o.StallTimeout = time.Second // a reset waits for the write in progress
			r, heard := stalling(t, o, false, func(w http.ResponseWriter, r *http.Request) error {
				serving.Pausing(w, func() bool {
					pauses.Add(1)
					select {
					case paused <- struct{}{}:
					default:
					}
					return c.pause
				}, func() error { resumes.Add(1); return c.resume })
				_, err := w.Write(answer)
				return err
			})
			read := getSilently(t, r, c.proto)
			<-paused
			if resumes.Load() > 0 {
				t.Error("it goes on though nobody reads")
			}
			if c.pause {
				read()
			}
			err := <-heard
			switch {
			case !c.pause && err == nil:
				t.Error("it was not cut")
			case c.pause && !errors.Is(err, c.resume):
				t.Errorf("the write ends with %v, want %v", err, c.resume)
			case c.pause && pauses.Load() != resumes.Load():
				t.Errorf("it paused %d times and went on %d times", pauses.Load(), resumes.Load())
			}
		})
	}
}

// getSilently asks, and reads the answer once read is called.
func getSilently(t *testing.T, r *running, proto string) (read func()) {
	t.Helper()
	if proto == "h2" {
		c := dialHTTP2(t, r, 0)
		c.request(1, "GET", true)
		return func() {
			for _, id := range []uint32{0, 1} {
				if err := c.WriteWindowUpdate(id, 1<<30); err != nil {
					t.Error(err)
				}
			}
			go func() {
				for err := error(nil); err == nil; {
					_, err = c.ReadFrame()
				}
			}()
		}
	}
	conn := dial(t, r, proto)
	if _, err := io.WriteString(conn, "GET /x HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	return func() { go func() { _, _ = io.Copy(io.Discard, conn) }() }
}

// TestShortAnswersDoNotPause: what a connection takes at once keeps nobody waiting.
func TestShortAnswersDoNotPause(t *testing.T) {
	r, heard := stalling(t, testOptions(t), false, func(w http.ResponseWriter, r *http.Request) error {
		serving.Pausing(struct{ http.ResponseWriter }{w}, nil, nil) // nothing is done for a writer that hides others
		serving.Pausing(w, func() bool { t.Error("it paused"); return true }, func() error { return nil })
		_, err := io.WriteString(w, strings.Repeat("x", 1<<10))
		return err
	})
	r.get(t, "/x")
	if err := <-heard; err != nil {
		t.Error(err)
	}
}
