package h2_test

import (
	"errors"
	"net"
	"net/http"
	"os"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"

	"binnacle/libs/serving/h2"
)

// production has the timeouts of the servers.
func production() h2.Config {
	c := config()
	c.StallTimeout, c.WriteTimeout, c.ResponseTimeout = 15*time.Second, 30*time.Second, 75*time.Second
	c.PingAfter, c.PingTimeout, c.MinRate = 45*time.Second, 15*time.Second, 2<<10
	return c
}

// throttled is a connection that is read at a rate, in bytes a second.
type throttled struct {
	net.Conn
	rate int
}

func (c throttled) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p[:min(len(p), 512)])
	time.Sleep(time.Duration(n) * time.Second / time.Duration(c.rate))
	return n, err
}

// slow dials a server for a client that reads at a rate.
func slow(t *testing.T, conf h2.Config, rate int, handler http.HandlerFunc) *unread {
	t.Helper()
	c := dialServer(t, h2.NewServer(conf), plainWire, handler)
	c.Framer = http2.NewFramer(c.Conn, throttled{c.Conn, rate})
	return c
}

// drainAside is drain in a goroutine of its own, until the returned function closes the connection.
func (c *unread) drainAside() (stop func()) {
	over := make(chan struct{})
	go func() {
		defer close(over)
		c.drain()
	}()
	return func() {
		_ = c.Conn.Close()
		<-over
	}
}

// pauseFor waits, no longer than the request lasts.
func pauseFor(r *http.Request, d time.Duration) {
	select {
	case <-time.After(d):
	case <-r.Context().Done():
	}
}

// grants opens windows, like a client that reads a frame of data.
func (c *unread) grants(f *http2.DataFrame) {
	if n := uint32(len(f.Data())); n > 0 {
		_ = errors.Join(c.WriteWindowUpdate(0, n), c.WriteWindowUpdate(f.StreamID, n)) // or the connection has ended
	}
}

// next returns the next frame; a connection that ends fails the test.
func (c *unread) next() http2.Frame {
	c.t.Helper()
	f, err := c.ReadFrame()
	c.must(err)
	return f
}

// TestResponsesShareSlowConnection: 30 responses over one slow connection complete, however small the
// windows are, and a watch beside them hears of its events.
func TestResponsesShareSlowConnection(t *testing.T) {
	const size, lists = 440_000, 30
	for name, window := range map[string]uint32{"small windows": 16 << 10, "usual windows": 64 << 10, "large windows": 4 << 20} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := slow(t, production(), 30_000, func(w http.ResponseWriter, r *http.Request) {
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
						pauseFor(r, time.Second)
					}
				})
				c.must(c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: window}))
				c.must(c.WriteWindowUpdate(0, 1<<20))
				watch := c.post("/watch", true)
				for range lists {
					c.post("/list", true)
				}
				events, whole, bytes := 0, 0, 0
				for whole < lists {
					switch f := c.next().(type) {
					case *http2.RSTStreamFrame, *http2.GoAwayFrame:
						t.Fatalf("%v after %d of %d lists", f, whole, lists)
					case *http2.DataFrame:
						if f.StreamID == watch {
							events++
						} else {
							bytes += len(f.Data())
						}
						if f.StreamEnded() {
							whole++
						}
						c.grants(f)
					}
				}
				if bytes != size*lists || events < 10 {
					t.Errorf("%d bytes came, want %d, and %d events", bytes, size*lists, events)
				}
			})
		})
	}
}

// TestDeadlineResetsOnlyItsStream: a deadline that passes while data are being written resets the
// stream once they are written. The connection and its other streams go on.
func TestDeadlineResetsOnlyItsStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failed := make(chan error, 1)
		c := slow(t, production(), 50_000, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/late" {
				_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(time.Second))
				_, err := w.Write(make([]byte, 1<<20))
				failed <- err
				return
			}
			_, _ = w.Write(make([]byte, 300_000))
		})
		c.open()
		late, other := c.post("/late", true), c.post("/other", true)
		reset := false
		for whole := false; !whole || !reset; {
			switch f := c.next().(type) {
			case *http2.RSTStreamFrame:
				if reset = true; f.StreamID != late || f.ErrCode != http2.ErrCodeInternal {
					t.Fatalf("stream %d is reset for %v", f.StreamID, f.ErrCode)
				}
			case *http2.GoAwayFrame:
				t.Fatal(f)
			case *http2.DataFrame:
				whole = whole || f.StreamEnded() && f.StreamID == other
				if reset && f.StreamID == late {
					t.Fatal("data follow the reset")
				}
			}
		}
		if err := <-failed; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the handler gets %v", err)
		}
	})
}

// TestDownloadIsSignOfLife: a client that takes data is not asked in vain, one that has all is.
func TestDownloadIsSignOfLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conf := production()
		conf.PingAfter, conf.PingTimeout = time.Second, time.Second
		c := slow(t, conf, 20_000, func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write(make([]byte, 400_000)) })
		c.open()
		c.post("/", true)
		for whole := false; !whole; {
			if f, ok := c.next().(*http2.DataFrame); ok {
				whole = f.StreamEnded()
			}
		}
		c.drain() // until the server closes the connection
	})
}

// TestConnectionThatTakesNothingIsClosed, whether the kernel or the window of the connection stops it,
// and whatever the client sends meanwhile.
func TestConnectionThatTakesNothingIsClosed(t *testing.T) {
	for name, window := range map[string]uint32{"it does not read": 1 << 20, "it does not open the window": 0} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				failed := make(chan error, 1)
				conf := production()
				conf.ResponseTimeout = 0
				c := slow(t, conf, 1<<20, func(w http.ResponseWriter, r *http.Request) {
					_, err := w.Write(make([]byte, 1<<20))
					failed <- err
				})
				c.must(c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20}))
				if window > 0 {
					c.must(c.WriteWindowUpdate(0, window))
					c.post("/", true)
				} else {
					c.post("/", true)
					defer c.drainAside()()
				}
				if err := <-failed; !errors.Is(err, h2.ErrStalled) {
					t.Errorf("the handler gets %v", err)
				}
			})
		})
	}
}

// TestClosedWindowResetsOnlyItsStream, after the timeout of that stream.
func TestClosedWindowResetsOnlyItsStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := slow(t, production(), 1<<20, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/patient" {
				w.(interface{ SetStallTimeout(time.Duration) }).SetStallTimeout(0)
			}
			_ = http.NewResponseController(w).SetWriteDeadline(time.Time{})
			for r.Context().Err() == nil {
				_, _ = w.Write(make([]byte, 100))
				w.(http.Flusher).Flush()
				pauseFor(r, 100*time.Millisecond)
			}
		})
		c.must(c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1000}))
		shut, open := c.post("/shut", true), c.post("/open", true)
		c.post("/patient", true)
		reset, after := false, 0
		for after < 1000 {
			switch f := c.next().(type) {
			case *http2.RSTStreamFrame:
				if reset = true; f.StreamID != shut {
					t.Fatalf("stream %d is reset", f.StreamID)
				}
			case *http2.GoAwayFrame:
				t.Fatal(f)
			case *http2.DataFrame:
				if f.StreamID == open {
					c.grants(f)
					if reset {
						after++
					}
				}
			}
		}
	})
}

// TestLongResponseNeedsMinRate: beyond the ResponseTimeout a response goes on as long as its
// connection takes enough.
func TestLongResponseNeedsMinRate(t *testing.T) {
	for rate, whole := range map[int]bool{4 << 10: true, 1 << 10: false} {
		t.Run(strconv.Itoa(rate), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				failed := make(chan error, 1)
				c := slow(t, production(), rate, func(w http.ResponseWriter, r *http.Request) {
					_, err := w.Write(make([]byte, 1<<20))
					failed <- err
				})
				c.open()
				c.post("/", true)
				defer c.drainAside()()
				if err := <-failed; (err == nil) != whole {
					t.Errorf("the handler gets %v", err)
				}
			})
		})
	}
}
