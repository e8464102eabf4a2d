package h2_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"

	"binnacle/libs/serving/h2"
)

// TestQueueIsWrittenByGoroutine checks that a handler writes the frames of other streams for a
// limited time only, and that they are still written.
func TestQueueIsWrittenByGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const part, parts = 10_000, 50
		client, server := net.Pipe()
		over, sizes := make(chan struct{}), map[string]chan int{"/": make(chan int), "/x": make(chan int)}
		var flushed, came atomic.Int64
		go func() {
			defer close(over)
			h2.NewServer(config()).ServeConn(context.Background(), newFakeWire(server),
				http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					for size := range sizes[r.URL.Path] {
						_, _ = w.Write(make([]byte, size))
						_ = http.NewResponseController(w).Flush()
						if r.URL.Path == "/" {
							flushed.Add(1)
						}
					}
				}))
		}()
		raw := &rawClient{Framer: http2.NewFramer(client, client), Conn: client, t: t}
		go func() {
			_, err := io.WriteString(client, http2.ClientPreface)
			raw.requireNoError(errors.Join(err, raw.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 30}),
				raw.WriteWindowUpdate(0, 1<<30)))
		}()
		read := func(until func(frame http2.Frame) bool) {
			for {
				frame, err := raw.ReadFrame()
				if err != nil {
					return
				}
				if d, ok := frame.(*http2.DataFrame); ok && d.StreamID == 3 {
					came.Add(int64(len(d.Data())))
				}
				if until(frame) {
					return
				}
			}
		}
		read(func(frame http2.Frame) bool { s, ok := frame.(*http2.SettingsFrame); return ok && s.IsAck() })
		synctest.Wait()
		raw.writeFrame(http2.FrameHeaders, endFlags, 1, postRequest)
		raw.writeFrame(http2.FrameHeaders, endFlags, 3, "\x83\x87\x44\x02/x\x41\x01a")
		synctest.Wait()
		sizes["/"] <- 10
		synctest.Wait()
		if flushed.Load() > 0 {
			t.Error("Flush() returned before the client read the response, want it to wait")
		}
		for range parts {
			sizes["/x"] <- part
		}
		synctest.Wait()
		read(func(frame http2.Frame) bool {
			return frame.Header().Type == http2.FrameData && frame.Header().StreamID == 1
		})
		synctest.Wait()
		if flushed.Load() != 1 {
			t.Errorf("got %d flushes, want 1: the handler no longer writes for other streams", flushed.Load())
		}
		go read(func(http2.Frame) bool { return false })
		synctest.Wait()
		sizes["/x"] <- 10
		synctest.Wait()
		if n := came.Load(); n != parts*part+10 {
			t.Errorf("got %d bytes, want %d", n, parts*part+10)
		}
		close(sizes["/"])
		close(sizes["/x"])
		synctest.Wait()
		_ = client.Close()
		<-over
	})
}

// TestStalledClientIsClosed checks that a connection is closed within the WriteTimeout if its
// client reads nothing.
func TestStalledClientIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const bound = 10 * time.Second
		conf := config()
		conf.WriteTimeout = bound
		client, server := net.Pipe()
		over, failed := make(chan struct{}), make(chan error, 1)
		go func() {
			defer close(over)
			h2.NewServer(conf).ServeConn(context.Background(), newFakeWire(server),
				http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					_, err := w.Write(make([]byte, 1<<20))
					failed <- err
				}))
		}()
		start := time.Now()
		c := &rawClient{Framer: http2.NewFramer(client, client), Conn: client, t: t}
		_, err := io.WriteString(client, http2.ClientPreface)
		c.requireNoError(errors.Join(err, c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 30}),
			c.WriteWindowUpdate(0, 1<<30)))
		c.writeFrame(http2.FrameHeaders, endFlags, 1, postRequest)
		<-over
		if elapsed := time.Since(start); <-failed == nil || elapsed < bound/2 || elapsed > bound {
			t.Errorf("the connection ended after %v, want %v", elapsed, bound)
		}
		_ = client.Close()
	})
}
