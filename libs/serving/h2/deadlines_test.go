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

// TestDeadlinesOfHandlersEndReadsAndWrites checks read and write deadlines that handlers set.
func TestDeadlinesOfHandlersEndReadsAndWrites(t *testing.T) {
	// in returns the deadline after d; 0 means none.
	in := func(d time.Duration) time.Time {
		if d == 0 {
			return time.Time{}
		}
		return time.Now().Add(d)
	}
	setWriteDeadlines := func(w http.ResponseWriter, after ...time.Duration) {
		for _, d := range after {
			_ = http.NewResponseController(w).SetWriteDeadline(in(d))
		}
	}
	large := make([]byte, 1<<20) // larger than all windows
	write := func(w http.ResponseWriter, deadlines ...time.Duration) error {
		setWriteDeadlines(w, deadlines...)
		_, err := w.Write(large)
		return err
	}
	read := func(w http.ResponseWriter, r *http.Request, deadlines ...time.Duration) error {
		for _, d := range deadlines {
			_ = http.NewResponseController(w).SetReadDeadline(in(d))
		}
		_, err := r.Body.Read(make([]byte, 1))
		return err
	}
	for name, test := range map[string]struct {
		handler func(w http.ResponseWriter, r *http.Request) error
		after   time.Duration // when the handler ends
		fails   bool
	}{
		"a response": {
			handler: func(w http.ResponseWriter, r *http.Request) error { return write(w, 10*time.Second) },
			after:   10 * time.Second, fails: true,
		},
		"a response, deadline extended": {
			handler: func(w http.ResponseWriter, r *http.Request) error { return write(w, 10*time.Second, 20*time.Second) },
			after:   20 * time.Second, fails: true,
		},
		"a response, deadline shortened": {
			handler: func(w http.ResponseWriter, r *http.Request) error { return write(w, 20*time.Second, 10*time.Second) },
			after:   10 * time.Second, fails: true,
		},
		"a response, deadline in the past": {
			handler: func(w http.ResponseWriter, r *http.Request) error { return write(w, -1) },
			after:   0, fails: true,
		},
		"a response, deadline removed": {
			handler: func(w http.ResponseWriter, r *http.Request) error {
				setWriteDeadlines(w, 10*time.Second, 0)
				time.Sleep(20 * time.Second)
				return r.Context().Err()
			},
			after: 20 * time.Second,
		},
		"a body": {
			handler: func(w http.ResponseWriter, r *http.Request) error { return read(w, r, 10*time.Second) },
			after:   10 * time.Second, fails: true,
		},
		"a body, deadline extended": {
			handler: func(w http.ResponseWriter, r *http.Request) error { return read(w, r, 10*time.Second, 20*time.Second) },
			after:   20 * time.Second, fails: true,
		},
		"a body, deadline in the past": {
			handler: func(w http.ResponseWriter, r *http.Request) error { return read(w, r, -1) },
			after:   0, fails: true,
		},
		"a body, deadline removed": {
			handler: func(w http.ResponseWriter, r *http.Request) error { return read(w, r, 10*time.Second, 0) },
			after:   30 * time.Second,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, server := net.Pipe()
				over, got := make(chan struct{}), make(chan error, 1)
				start := time.Now()
				go func() {
					defer close(over)
					h2.NewServer(config()).ServeConn(context.Background(), newFakeWire(server),
						http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
							got <- test.handler(w, r)
						}))
				}()
				framer := http2.NewFramer(client, nil)
				_, err := io.WriteString(client, http2.ClientPreface)
				if err = errors.Join(err, framer.WriteSettings(), framer.WriteWindowUpdate(0, 1<<30),
					framer.WriteRawFrame(http2.FrameHeaders, http2.FlagHeadersEndHeaders, 1, []byte(postRequest))); err != nil {
					t.Fatal(err)
				}
				go func() { _, _ = io.Copy(io.Discard, client) }() // opens no window
				go func() {
					time.Sleep(30 * time.Second)
					_ = framer.WriteData(1, true, []byte("x")) // fails if the connection has ended
				}()
				err = <-got
				if elapsed := time.Since(start); elapsed != test.after || (err != nil) != test.fails {
					t.Errorf("ended after %v with %v, want %v", elapsed, err, test.after)
				}
				if test.fails && !errors.Is(err, os.ErrDeadlineExceeded) {
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
			h2.NewServer(config()).ServeConn(context.Background(), newFakeWire(server),
				http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(10 * time.Second))
					_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(10 * time.Second))
					w.Header().Set("Content-Length", "20000")
					_, _ = w.Write(make([]byte, 20_000))
					time.Sleep(20 * time.Second)
				}))
		}()
		raw := &rawClient{Framer: http2.NewFramer(client, client), Conn: client, t: t}
		read := make(chan string, 100)
		go func() {
			defer close(read)
			for {
				f, err := raw.ReadFrame()
				if err != nil {
					return
				}
				if f, ok := f.(*http2.RSTStreamFrame); ok {
					read <- f.ErrCode.String()
				}
			}
		}()
		_, err := io.WriteString(client, http2.ClientPreface)
		raw.requireNoError(errors.Join(err, raw.WriteSettings()))
		raw.writeFrame(http2.FrameHeaders, endFlags, 1, postRequest)
		raw.writeFrame(http2.FrameHeaders, http2.FlagHeadersEndHeaders, 3, postRequest)
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
