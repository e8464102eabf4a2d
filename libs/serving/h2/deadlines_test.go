package h2_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"

	"binnacle/libs/serving/h2"
)

// TestHandlerDeadlines checks read and write deadlines that handlers set.
func TestHandlerDeadlines(t *testing.T) {
	writes := func(w http.ResponseWriter, after ...time.Duration) {
		for _, d := range after {
			at := time.Time{}
			if d != 0 {
				at = time.Now().Add(d)
			}
			_ = http.NewResponseController(w).SetWriteDeadline(at)
		}
	}
	reads := func(w http.ResponseWriter, r *http.Request, after ...time.Duration) error {
		for _, d := range after {
			at := time.Time{}
			if d != 0 {
				at = time.Now().Add(d)
			}
			_ = http.NewResponseController(w).SetReadDeadline(at)
		}
		_, err := r.Body.Read(make([]byte, 1))
		return err
	}
	large := make([]byte, 1<<20) // larger than all windows
	all := func(w http.ResponseWriter) error {
		_, err := w.Write(large)
		return err
	}
	for name, c := range map[string]struct {
		handler func(w http.ResponseWriter, r *http.Request) error
		after   time.Duration
		fails   bool
	}{
		"an answer": {func(w http.ResponseWriter, r *http.Request) error { writes(w, 10*time.Second); return all(w) }, 10 * time.Second, true},
		"put off": {func(w http.ResponseWriter, r *http.Request) error {
			writes(w, 10*time.Second, 20*time.Second)
			return all(w)
		}, 20 * time.Second, true},
		"brought forward": {func(w http.ResponseWriter, r *http.Request) error {
			writes(w, 20*time.Second, 10*time.Second)
			return all(w)
		}, 10 * time.Second, true},
		"passed": {func(w http.ResponseWriter, r *http.Request) error { writes(w, -1); return all(w) }, 0, true},
		"lifted": {func(w http.ResponseWriter, r *http.Request) error {
			writes(w, 10*time.Second, 0)
			time.Sleep(20 * time.Second)
			return r.Context().Err()
		}, 20 * time.Second, false},
		"a body":              {func(w http.ResponseWriter, r *http.Request) error { return reads(w, r, 10*time.Second) }, 10 * time.Second, true},
		"a body, put off":     {func(w http.ResponseWriter, r *http.Request) error { return reads(w, r, 10*time.Second, 20*time.Second) }, 20 * time.Second, true},
		"a body that is late": {func(w http.ResponseWriter, r *http.Request) error { return reads(w, r, -1) }, 0, true},
		"a body, lifted":      {func(w http.ResponseWriter, r *http.Request) error { return reads(w, r, 10*time.Second, 0) }, 30 * time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, server := net.Pipe()
				over, got := make(chan struct{}), make(chan error, 1)
				begin := time.Now()
				go func() {
					defer close(over)
					h2.NewServer(config()).ServeConn(context.Background(), newFakeWire(server), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						got <- c.handler(w, r)
					}))
				}()
				f := http2.NewFramer(client, nil)
				_, err := io.WriteString(client, http2.ClientPreface)
				if err = errors.Join(err, f.WriteSettings(), f.WriteWindowUpdate(0, 1<<30), f.WriteRawFrame(http2.FrameHeaders, http2.FlagHeadersEndHeaders, 1, []byte(postRequest))); err != nil {
					t.Fatal(err)
				}
				go func() { _, _ = io.Copy(io.Discard, client) }() // opens no window
				go func() {
					time.Sleep(30 * time.Second)
					_ = f.WriteData(1, true, []byte("x")) // fails if the connection has ended
				}()
				err = <-got
				if took := time.Since(begin); took != c.after || (err != nil) != c.fails {
					t.Errorf("ended after %v with %v, want %v", took, err, c.after)
				}
				if c.fails && !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("error = %v, want os.ErrDeadlineExceeded", err)
				}
				_ = client.Close()
				<-over
				time.Sleep(time.Minute)
			})
		})
	}
}

// TestDeadlineIgnoresCompleteResponse checks that deadlines of complete responses, and of requests
// without a body, have no effect.
func TestDeadlineIgnoresCompleteResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe()
		over := make(chan struct{})
		go func() {
			defer close(over)
			h2.NewServer(config()).ServeConn(context.Background(), newFakeWire(server), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(10 * time.Second))
				_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(10 * time.Second))
				w.Header().Set("Content-Length", "20000")
				_, _ = w.Write(make([]byte, 20_000))
				time.Sleep(20 * time.Second)
			}))
		}()
		c := &rawClient{Framer: http2.NewFramer(client, client), Conn: client, t: t}
		read := make(chan string, 100)
		go func() {
			defer close(read)
			for {
				f, err := c.ReadFrame()
				if err != nil {
					return
				}
				if f, ok := f.(*http2.RSTStreamFrame); ok {
					read <- f.ErrCode.String()
				}
			}
		}()
		_, err := io.WriteString(client, http2.ClientPreface)
		c.must(errors.Join(err, c.WriteSettings()))
		c.writeFrame(http2.FrameHeaders, endFlags, 1, postRequest)
		c.writeFrame(http2.FrameHeaders, http2.FlagHeadersEndHeaders, 3, postRequest)
		if got := <-read; got != "NO_ERROR" {
			t.Errorf("stream was reset with %s, want NO_ERROR", got)
		}
		synctest.Wait()
		_ = client.Close()
		<-over
		if got, more := <-read; more {
			t.Errorf("unexpected reset %s", got)
		}
	})
}
