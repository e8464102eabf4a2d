package h2_test

import (
	"errors"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"

	"binnacle/libs/serving/h2"
)

// productionConfig returns the timeouts of package serving.
func productionConfig() h2.Config {
	c := config()
	c.StallTimeout = 15 * time.Second
	c.WriteTimeout = 30 * time.Second
	c.ResponseTimeout = 75 * time.Second
	c.PingAfter, c.PingTimeout, c.MinRate = 45*time.Second, 15*time.Second, 2<<10
	return c
}

// throttledConn is a connection that is read at a rate, in bytes per second.
type throttledConn struct {
	net.Conn
	rate int
}

func (c throttledConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p[:min(len(p), 512)])
	time.Sleep(time.Duration(n) * time.Second / time.Duration(c.rate))
	return n, err
}

// bufferedWire is a wire whose kernel buffers up to 1 MiB of unacknowledged bytes.
type bufferedWire struct {
	fakeWire
	mu       sync.Mutex
	cond     sync.Cond
	buffered []byte
	sent     int64
	err      error
}

func newBufferedWire(c net.Conn) h2.Wire {
	d := &bufferedWire{fakeWire: newFakeWire(c)}
	d.cond.L = &d.mu
	go d.deliver()
	return d
}

func (d *bufferedWire) deliver() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for d.err == nil {
		for len(d.buffered) == 0 && d.err == nil {
			d.cond.Wait()
		}
		part := d.buffered[:min(len(d.buffered), 1<<10)]
		d.mu.Unlock()
		_, err := d.Conn.Write(part)
		d.mu.Lock()
		d.buffered, d.sent = d.buffered[len(part):], d.sent+int64(len(part))
		if d.err == nil {
			d.err = err
		}
		d.cond.Broadcast()
	}
}

func (d *bufferedWire) Write(data []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for len(d.buffered) > 1<<20 && d.err == nil {
		d.cond.Wait()
	}
	d.buffered = append(d.buffered, data...)
	d.cond.Broadcast()
	return len(data), d.err
}

func (d *bufferedWire) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.err = net.ErrClosed
	d.cond.Broadcast()
	return d.Conn.Close()
}

func (d *bufferedWire) Delivered() (int64, int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.sent, int64(len(d.buffered))
}

// dialSlow connects to a server with a client that reads at a rate.
func dialSlow(t *testing.T, conf h2.Config, rate int, handler http.HandlerFunc) *rawClient {
	t.Helper()
	return dialSlowWire(t, conf, rate, dialWire, handler)
}

func dialSlowWire(t *testing.T, conf h2.Config, rate int, wire func(net.Conn) h2.Wire, handler http.HandlerFunc) *rawClient {
	t.Helper()
	c := dialServer(t, h2.NewServer(conf), wire, handler)
	c.Framer = http2.NewFramer(c.Conn, throttledConn{c.Conn, rate})
	return c
}

// readInBackground calls readAll in a goroutine. The returned function closes the connection and
// waits for it.
func (c *rawClient) readInBackground() (stop func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.readAll()
	}()
	return func() {
		_ = c.Conn.Close()
		<-done
	}
}

// sleep sleeps until d has passed or the request has ended.
func sleep(r *http.Request, d time.Duration) {
	select {
	case <-time.After(d):
	case <-r.Context().Done():
	}
}

// openWindows opens the windows after a DATA frame.
func (c *rawClient) openWindows(f *http2.DataFrame) {
	if n := uint32(len(f.Data())); n > 0 {
		_ = errors.Join(c.WriteWindowUpdate(0, n), c.WriteWindowUpdate(f.StreamID, n)) // fails if the connection has ended
	}
}

// next returns the next frame. It fails the test if the connection ends.
func (c *rawClient) next() http2.Frame {
	c.t.Helper()
	f, err := c.ReadFrame()
	c.requireNoError(err)
	return f
}

// TestResponsesShareSlowConnection checks that 30 responses over one slow connection complete with
// windows of any size, and that a watch receives events meanwhile.
func TestResponsesShareSlowConnection(t *testing.T) {
	const size, lists = 440_000, 30
	for name, window := range map[string]uint32{"small windows": 16 << 10, "usual windows": 64 << 10, "large windows": 4 << 20} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rawClient := dialSlowWire(t, productionConfig(), 30_000, newBufferedWire, func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path == "/list" {
						_, _ = w.Write(make([]byte, size))
						return
					}
					_ = http.NewResponseController(w).SetWriteDeadline(time.Time{})
					for r.Context().Err() == nil {
						if _, err := w.Write([]byte("event")); err != nil {
							return
						}
						w.(http.Flusher).Flush()
						sleep(r, time.Second)
					}
				})
				rawClient.requireNoError(rawClient.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: window}))
				rawClient.requireNoError(rawClient.WriteWindowUpdate(0, 1<<20))
				watch := rawClient.openPost("/watch", true)
				for range lists {
					rawClient.openPost("/list", true)
				}
				events, complete, bytes := 0, 0, 0
				for complete < lists {
					switch f := rawClient.next().(type) {
					case *http2.RSTStreamFrame, *http2.GoAwayFrame:
						t.Fatalf("%v after %d of %d lists", f, complete, lists)
					case *http2.DataFrame:
						if f.StreamID == watch {
							events++
						} else {
							bytes += len(f.Data())
						}
						if f.StreamEnded() {
							complete++
						}
						rawClient.openWindows(f)
					}
				}
				if bytes != size*lists || events < 10 {
					t.Errorf("got %d bytes and %d events, want %d bytes and at least 10 events", bytes, events, size*lists)
				}
			})
		})
	}
}

// TestDeadlineResetsOnlyItsStream checks that a deadline that passes during a write resets the
// stream after the write. The connection and its other streams continue.
func TestDeadlineResetsOnlyItsStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failed := make(chan error, 1)
		rawClient := dialSlow(t, productionConfig(), 50_000, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/late" {
				_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(time.Second))
				_, err := w.Write(make([]byte, 1<<20))
				failed <- err
				return
			}
			time.Sleep(500 * time.Millisecond) // until the first response is being written
			_, _ = w.Write(make([]byte, 300_000))
		})
		rawClient.openAllWindows()
		late, otherStream := rawClient.openPost("/late", true), rawClient.openPost("/other", true)
		reset := false
		for complete := false; !complete || !reset; {
			switch f := rawClient.next().(type) {
			case *http2.RSTStreamFrame:
				reset = true
				if f.StreamID != late || f.ErrCode != http2.ErrCodeInternal {
					t.Fatalf("got stream %d reset with %v, want stream %d with %v", f.StreamID, f.ErrCode, late,
						http2.ErrCodeInternal)
				}
			case *http2.GoAwayFrame:
				t.Fatal(f)
			case *http2.DataFrame:
				complete = complete || f.StreamEnded() && f.StreamID == otherStream
				if reset && f.StreamID == late {
					t.Fatal("DATA after the reset")
				}
			}
		}
		if err := <-failed; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("Write() = %v, want os.ErrDeadlineExceeded", err)
		}
	})
}

// TestDownloadCountsAsLiveness checks that a client that acknowledges data need not respond to a
// PING.
func TestDownloadCountsAsLiveness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conf := productionConfig()
		conf.PingAfter, conf.PingTimeout = time.Second, time.Second
		rawClient := dialSlow(t, conf, 20_000, func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write(make([]byte, 400_000)) })
		rawClient.openAllWindows()
		rawClient.openPost("/", true)
		for complete := false; !complete; {
			if f, ok := rawClient.next().(*http2.DataFrame); ok {
				complete = f.StreamEnded()
			}
		}
		rawClient.readAll() // returns only if the server closes the idle connection
	})
}

// TestStalledConnectionIsClosed checks that a connection is closed if the kernel or the connection
// window blocks it, even if the client sends frames.
func TestStalledConnectionIsClosed(t *testing.T) {
	for name, window := range map[string]uint32{"client does not read": 1 << 20, "closed connection window": 0} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				failed := make(chan error, 1)
				conf := productionConfig()
				conf.ResponseTimeout = 0
				rawClient := dialSlow(t, conf, 1<<20, func(w http.ResponseWriter, r *http.Request) {
					_, err := w.Write(make([]byte, 1<<20))
					failed <- err
				})
				rawClient.requireNoError(rawClient.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20}))
				if window > 0 {
					rawClient.requireNoError(rawClient.WriteWindowUpdate(0, window))
					rawClient.openPost("/", true)
				} else {
					rawClient.openPost("/", true)
					defer rawClient.readInBackground()()
				}
				if err := <-failed; !errors.Is(err, h2.ErrStalled) {
					t.Errorf("Write() = %v, want ErrStalled", err)
				}
			})
		})
	}
}

// TestClosedWindowResetsOnlyItsStream checks that the stall timeout resets only the stream whose
// window is closed.
func TestClosedWindowResetsOnlyItsStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rawClient := dialSlow(t, productionConfig(), 1<<20, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/patient" {
				w.(interface{ SetStallTimeout(time.Duration) }).SetStallTimeout(0)
			}
			_ = http.NewResponseController(w).SetWriteDeadline(time.Time{})
			for r.Context().Err() == nil {
				_, _ = w.Write(make([]byte, 100))
				w.(http.Flusher).Flush()
				sleep(r, 100*time.Millisecond)
			}
		})
		rawClient.requireNoError(rawClient.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1000}))
		shut, open := rawClient.openPost("/shut", true), rawClient.openPost("/open", true)
		rawClient.openPost("/patient", true)
		reset, after := false, 0
		for after < 1000 {
			switch f := rawClient.next().(type) {
			case *http2.RSTStreamFrame:
				reset = true
				if f.StreamID != shut {
					t.Fatalf("stream %d was reset, want %v", f.StreamID, shut)
				}
			case *http2.GoAwayFrame:
				t.Fatal(f)
			case *http2.DataFrame:
				if f.StreamID == open {
					rawClient.openWindows(f)
					if reset {
						after++
					}
				}
			}
		}
	})
}

// TestLongResponseNeedsMinRate checks that a response continues after the ResponseTimeout only if
// its connection acknowledges MinRate.
func TestLongResponseNeedsMinRate(t *testing.T) {
	for rate, complete := range map[int]bool{4 << 10: true, 1 << 10: false} {
		t.Run(strconv.Itoa(rate), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				failed := make(chan error, 1)
				rawClient := dialSlow(t, productionConfig(), rate, func(w http.ResponseWriter, r *http.Request) {
					_, err := w.Write(make([]byte, 1<<20))
					failed <- err
				})
				rawClient.openAllWindows()
				rawClient.openPost("/", true)
				defer rawClient.readInBackground()()
				if err := <-failed; (err == nil) != complete {
					t.Errorf("Write() = %v, want success: %v", err, complete)
				}
			})
		})
	}
}
