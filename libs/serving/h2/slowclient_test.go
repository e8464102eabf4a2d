package h2_test

import (
	"bytes"
	"net"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"

	"binnacle/libs/serving/h2"
)

// countingWire counts resets and calls of Throttle.
type countingWire struct {
	fakeWire
	mu            sync.Mutex
	waits, resets int
}

func (c *countingWire) FramesReceived(resets, _ int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.resets += resets
}

func (c *countingWire) Throttle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waits++
}

// TestFloodIsThrottledAtAnyFrameBoundary checks that resets are counted and throttled even if each
// read ends inside a frame.
func TestFloodIsThrottledAtAnyFrameBoundary(t *testing.T) {
	const parts, streams, head = 20, 50, 9
	for name, cut := range map[string]int{"between frames": 0, "after the head of a frame": head, "within a frame": head + 2} {
		t.Run(name, func(t *testing.T) {
			var wire *countingWire
			rawClient := dialServer(t, h2.NewServer(config()), func(conn net.Conn) h2.Wire {
				wire = &countingWire{fakeWire: newFakeWire(conn)}
				return wire
			}, func(http.ResponseWriter, *http.Request) {})
			acked := make(chan struct{})
			go func() {
				for {
					f, err := rawClient.ReadFrame()
					if err != nil {
						return
					}
					if f.Header().Type == http2.FramePing {
						acked <- struct{}{}
					}
				}
			}()
			var all bytes.Buffer
			frames := http2.NewFramer(&all, nil)
			block := []byte("\x83\x87\x84\x41\x01a") // POST https a /
			for part := range parts {
				for range streams {
					rawClient.id += 2
					rawClient.requireNoError(frames.WriteHeaders(http2.HeadersFrameParam{
						StreamID:      rawClient.id - 1,
						BlockFragment: block,
						EndHeaders:    true,
						EndStream:     true,
					}))
					rawClient.requireNoError(frames.WriteRSTStream(rawClient.id-1, http2.ErrCodeCancel))
				}
				at := all.Len()
				rawClient.id += 2
				rawClient.requireNoError(frames.WriteHeaders(http2.HeadersFrameParam{
					StreamID:      rawClient.id - 1,
					BlockFragment: block,
					EndHeaders:    true,
					EndStream:     true,
				}))
				if part == parts-1 {
					cut = all.Len() - at
				}
				_, err := rawClient.Conn.Write(all.Next(at + cut))
				rawClient.requireNoError(err)
			}
			for range 2 { // a count may be reported before the second PING only
				rawClient.requireNoError(rawClient.WritePing(false, [8]byte{}))
				<-acked
			}
			wire.mu.Lock()
			defer wire.mu.Unlock()
			if want := parts * streams; wire.resets != want || wire.waits < parts {
				t.Errorf("got %d resets and %d throttled parts, want %d, and at least %d", wire.resets, wire.waits, want, parts)
			}
		})
	}
}

// openAllWindows opens all windows.
func (c *rawClient) openAllWindows() {
	c.t.Helper()
	const most = 1<<31 - 1
	c.requireNoError(c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: most}))
	c.requireNoError(c.WriteWindowUpdate(0, most-65535))
}

// readAll reads until the connection ends.
func (c *rawClient) readAll() {
	for {
		if _, err := c.ReadFrame(); err != nil {
			return
		}
	}
}

// TestDeadlinePassesForReadingClient checks that a handler's deadline also passes if the client
// reads.
func TestDeadlinePassesForReadingClient(t *testing.T) {
	event, large := make([]byte, 100), make([]byte, 1<<20)
	for name, send := range map[string]func(w http.ResponseWriter) error{
		"large parts": func(w http.ResponseWriter) error {
			_, err := w.Write(large)
			return err
		},
		"events": func(w http.ResponseWriter) error {
			if _, err := w.Write(event); err != nil {
				return err
			}
			return http.NewResponseController(w).Flush()
		},
	} {
		t.Run(name, func(t *testing.T) {
			ended := make(chan struct{})
			rawClient := dialServer(t, h2.NewServer(config()), func(conn net.Conn) h2.Wire { return newFakeWire(conn) },
				func(w http.ResponseWriter, r *http.Request) {
					defer close(ended)
					_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
					for send(w) == nil {
					}
				})
			rawClient.openAllWindows()
			rawClient.openPost("/", true)
			go rawClient.readAll()
			<-ended
		})
	}
}

// TestShutdownCompletesSlowResponse checks that a slow client gets the complete response after a
// GOAWAY.
func TestShutdownCompletesSlowResponse(t *testing.T) {
	synctest.Test(t, testShutdownCompletesSlowResponse)
}

// testShutdownCompletesSlowResponse lets a client read a response slowly that begins after
// Shutdown.
func testShutdownCompletesSlowResponse(t *testing.T) {
	const size = 600 << 10
	started, end := make(chan struct{}), make(chan struct{})
	server := h2.NewServer(config())
	rawClient := dialServer(t, server, func(conn net.Conn) h2.Wire { return newFakeWire(conn) }, func(w http.ResponseWriter, r *http.Request) {
		close(started)
		<-end
		w.Header().Set("Content-Length", strconv.Itoa(size))
		_, _ = w.Write(make([]byte, size)) // or the client misses it
	})
	rawClient.openAllWindows()
	rawClient.openPost("/", true)
	<-started
	server.Shutdown()
	close(end)
	for got, slow := 0, true; ; {
		f, err := rawClient.ReadFrame()
		if err != nil {
			t.Fatalf("%d of %d bytes, then %v", got, size, err)
		}
		dataFrame, ok := f.(*http2.DataFrame)
		if !ok {
			continue
		}
		got += len(dataFrame.Data())
		if dataFrame.StreamEnded() {
			break
		}
		if slow && got > size-40<<10 { // the last part is being written
			time.Sleep(1500 * time.Millisecond) // longer than linger
			slow = false
		}
	}
}

// writeEvents flushes events until it fails.
func writeEvents(w http.ResponseWriter, _ *http.Request) {
	event := make([]byte, 10_000)
	for {
		if _, err := w.Write(event); err != nil || http.NewResponseController(w).Flush() != nil {
			return
		}
	}
}

// TestSlowReaderIsNotAborted checks that the write timeout applies to progress and not to the whole
// response.
func TestSlowReaderIsNotAborted(t *testing.T) {
	synctest.Test(t, testSlowReaderIsNotAborted)
}

// testSlowReaderIsNotAborted lets a client read many watches at a low rate for longer than
// WriteTimeout.
func testSlowReaderIsNotAborted(t *testing.T) {
	const rate, watches = 400 << 10, 100 // rate in bytes per second
	conf := config()
	conf.WriteTimeout = time.Second
	rawClient := dialServer(t, h2.NewServer(conf), func(conn net.Conn) h2.Wire { return newFakeWire(conn) }, writeEvents)
	rawClient.openAllWindows()
	for range watches {
		rawClient.openPost("/", true)
	}
	buffer := make([]byte, 8<<10)
	start := time.Now()
	for total := 0; total < 5*rate; {
		n, err := rawClient.Conn.Read(buffer)
		if err != nil {
			t.Fatalf("%d bytes, then %v", total, err)
		}
		total += n
		time.Sleep(time.Duration(total)*time.Second/rate - time.Since(start))
	}
}

// TestWatchesDoNotBlockLargeResponse checks that many busy watches share the connection with a
// large response.
func TestWatchesDoNotBlockLargeResponse(t *testing.T) {
	const watches, most = 99, 256 << 20
	response := make([]byte, most) // takes long to write
	rawClient := dialRaw(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/large" {
			_, _ = w.Write(response)
			return
		}
		writeEvents(w, r)
	})
	rawClient.openAllWindows()
	for range watches {
		rawClient.openPost("/", true)
	}
	large := rawClient.openPost("/large", true)
	received := map[uint32]int{}
	for total := 0; len(received) < watches+1 || received[large] < 1<<20; {
		f, err := rawClient.ReadFrame()
		rawClient.requireNoError(err)
		dataFrame, ok := f.(*http2.DataFrame)
		if !ok {
			continue
		}
		received[dataFrame.StreamID] += len(dataFrame.Data())
		total += len(dataFrame.Data())
		if total > most {
			t.Fatalf("of %d bytes, %d belong to the large response, and %d of %d streams received some", total,
				received[large], len(received), watches+1)
		}
	}
}
