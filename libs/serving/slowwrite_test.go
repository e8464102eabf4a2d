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

	"binnacle/libs/serving/exchange"
)

// TestSlowWriteSuspendsHandler checks that a write to a client that does not read suspends the
// handler, and that resume decides whether the write succeeds.
func TestSlowWriteSuspendsHandler(t *testing.T) {
	t.Parallel()
	response, errOver := bytes.Repeat([]byte("x"), 32<<20), errors.New("over")
	for name, test := range map[string]struct {
		proto  string
		pause  bool  // otherwise the response is aborted
		resume error // becomes the error of the write
	}{
		"HTTP/1, resumed":          {proto: "http/1.1", pause: true, resume: nil},
		"HTTP/2, resumed":          {proto: "h2", pause: true, resume: nil},
		"HTTP/1, resume fails":     {proto: "http/1.1", pause: true, resume: errOver},
		"HTTP/2, resume fails":     {proto: "h2", pause: true, resume: errOver},
		"HTTP/1, suspend rejected": {proto: "http/1.1", pause: false, resume: nil},
		"HTTP/2, suspend rejected": {proto: "h2", pause: false, resume: nil},
	} {
		t.Run(name, func(t *testing.T) {
			var pauses, resumes atomic.Int32
			paused := make(chan struct{}, 1)
			o := testOptions(t)
			o.StallTimeout = time.Second // a reset waits for the current write
			testServer, handlerErr := startStalling(t, o, false, func(w http.ResponseWriter, r *http.Request) error {
				exchange.OnSlowWrite(w, func() bool {
					pauses.Add(1)
					select {
					case paused <- struct{}{}:
					default:
					}
					return test.pause
				}, func() error { resumes.Add(1); return test.resume })
				_, err := w.Write(response)
				return err
			})
			read := getWithoutReading(t, testServer, test.proto)
			<-paused
			if resumes.Load() > 0 {
				t.Errorf("%d resumes before the client reads, want 0", resumes.Load())
			}
			if test.pause {
				read()
			}
			err := <-handlerErr
			switch {
			case !test.pause && err == nil:
				t.Error("write to a client that does not read = nil, want an error")
			case test.pause && !errors.Is(err, test.resume):
				t.Errorf("Write() = %v, want %v", err, test.resume)
			case test.pause && pauses.Load() != resumes.Load():
				t.Errorf("got %d pauses, %d resumptions, want equal numbers", pauses.Load(), resumes.Load())
			}
		})
	}
}

// getWithoutReading sends a request, and reads the response once read is called.
func getWithoutReading(t *testing.T, server *testServer, proto string) (read func()) {
	t.Helper()
	if proto == "h2" {
		rawHTTP2 := dialHTTP2(t, server, 0)
		rawHTTP2.request(1, "GET", true)
		return func() {
			for _, id := range []uint32{0, 1} {
				if err := rawHTTP2.WriteWindowUpdate(id, 1<<30); err != nil {
					t.Error(err)
				}
			}
			go func() {
				for err := error(nil); err == nil; {
					_, err = rawHTTP2.ReadFrame()
				}
			}()
		}
	}
	conn := dial(t, server, proto)
	if _, err := io.WriteString(conn, "GET /x HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	return func() { go func() { _, _ = io.Copy(io.Discard, conn) }() }
}

// TestSmallResponseDoesNotSuspend checks that a response that fits into buffers does not suspend
// the handler.
func TestSmallResponseDoesNotSuspend(t *testing.T) {
	testServer, handlerErr := startStalling(t, testOptions(t), false, func(w http.ResponseWriter, r *http.Request) error {
		exchange.OnSlowWrite(struct{ http.ResponseWriter }{w}, nil, nil) // has no effect on a writer without Unwrap
		suspend := func() bool {
			t.Error("the handler was suspended for a small response, want it to continue")
			return true
		}
		exchange.OnSlowWrite(w, suspend, func() error { return nil })
		_, err := io.WriteString(w, strings.Repeat("x", 1<<10))
		return err
	})
	testServer.get(t, "/x")
	if err := <-handlerErr; err != nil {
		t.Error(err)
	}
}
