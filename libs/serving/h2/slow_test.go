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

// counting is a connection that counts what is told of its client, and when it is asked to wait.
type counting struct {
	plain
	mu            sync.Mutex
	waits, resets int
}

func (c *counting) Came(resets, _ int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.resets += resets
}

func (c *counting) Wait() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waits++
}

// TestFloodsWaitWhereverTheirRecordsEnd: who resets streams is told of, and has to wait, also if
// what it sends at a time ends within frames.
func TestFloodsWaitWhereverTheirRecordsEnd(t *testing.T) {
	const parts, streams, head = 20, 50, 9
	for name, cut := range map[string]int{"between frames": 0, "after the head of a frame": head, "within a frame": head + 2} {
		t.Run(name, func(t *testing.T) {
			var wire *counting
			c := dialServer(t, h2.NewServer(config()), func(conn net.Conn) h2.Wire {
				wire = &counting{plain: newPlain(conn)}
				return wire
			}, func(http.ResponseWriter, *http.Request) {})
			acked := make(chan struct{})
			go func() {
				for {
					f, err := c.ReadFrame()
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
					c.id += 2
					c.must(frames.WriteHeaders(http2.HeadersFrameParam{StreamID: c.id - 1, BlockFragment: block, EndHeaders: true, EndStream: true}))
					c.must(frames.WriteRSTStream(c.id-1, http2.ErrCodeCancel))
				}
				at := all.Len()
				c.id += 2
				c.must(frames.WriteHeaders(http2.HeadersFrameParam{StreamID: c.id - 1, BlockFragment: block, EndHeaders: true, EndStream: true}))
				if part == parts-1 {
					cut = all.Len() - at
				}
				_, err := c.Conn.Write(all.Next(at + cut))
				c.must(err)
			}
			for range 2 { // what is told before the second has come is told of all
				c.must(c.WritePing(false, [8]byte{}))
				<-acked
			}
			wire.mu.Lock()
			defer wire.mu.Unlock()
			if want := parts * streams; wire.resets != want || wire.waits < parts {
				t.Errorf("%d of %d resets are told, and %d of %d parts waited for", wire.resets, want, wire.waits, parts)
			}
		})
	}
}

// open has the client take all that there is.
func (c *unread) open() {
	c.t.Helper()
	const most = 1<<31 - 1
	c.must(c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: most}))
	c.must(c.WriteWindowUpdate(0, most-65535))
}

// drain reads until the connection ends.
func (c *unread) drain() {
	for {
		if _, err := c.ReadFrame(); err != nil {
			return
		}
	}
}

// TestDeadlinesOfClientsThatRead: the deadline that a handler sets passes for a client that reads, too.
func TestDeadlinesOfClientsThatRead(t *testing.T) {
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
			c := dialServer(t, h2.NewServer(config()), func(conn net.Conn) h2.Wire { return newPlain(conn) }, func(w http.ResponseWriter, r *http.Request) {
				defer close(ended)
				_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
				for send(w) == nil {
				}
			})
			c.open()
			c.post("/", true)
			go c.drain()
			<-ended
		})
	}
}

// TestAnswersEndWhenTheServerDoes: who was told to leave may take its time for an answer that
// has begun.
func TestAnswersEndWhenTheServerDoes(t *testing.T) {
	synctest.Test(t, answerEndsWhenTheServerDoes)
}

func answerEndsWhenTheServerDoes(t *testing.T) {
	const size = 600 << 10
	begun, end := make(chan struct{}), make(chan struct{})
	s := h2.NewServer(config())
	c := dialServer(t, s, func(conn net.Conn) h2.Wire { return newPlain(conn) }, func(w http.ResponseWriter, r *http.Request) {
		close(begun)
		<-end
		w.Header().Set("Content-Length", strconv.Itoa(size))
		_, _ = w.Write(make([]byte, size)) // or the client misses it
	})
	c.open()
	c.post("/", true)
	<-begun
	s.Shutdown()
	close(end)
	for got, slow := 0, true; ; {
		f, err := c.ReadFrame()
		if err != nil {
			t.Fatalf("%d of %d bytes, then %v", got, size, err)
		}
		d, ok := f.(*http2.DataFrame)
		if !ok {
			continue
		}
		if got += len(d.Data()); d.StreamEnded() {
			break
		}
		if slow && got > size-40<<10 { // the last of it is being written
			time.Sleep(1500 * time.Millisecond) // more than the server waits for a client that leaves
			slow = false
		}
	}
}

// events has a handler that flushes events until it ends.
func events(w http.ResponseWriter, _ *http.Request) {
	event := make([]byte, 10_000)
	for {
		if _, err := w.Write(event); err != nil || http.NewResponseController(w).Flush() != nil {
			return
		}
	}
}

// TestSlowClientsThatReadAreNotCut: a client has its time for each part of what is written, not
// for all of it.
func TestSlowClientsThatReadAreNotCut(t *testing.T) {
	synctest.Test(t, slowClientIsNotCut)
}

func slowClientIsNotCut(t *testing.T) {
	const rate, watches = 400 << 10, 100 // bytes a second
	conf := config()
	conf.WriteTimeout = time.Second
	c := dialServer(t, h2.NewServer(conf), func(conn net.Conn) h2.Wire { return newPlain(conn) }, events)
	c.open()
	for range watches {
		c.post("/", true)
	}
	buffer := make([]byte, 8<<10)
	begin := time.Now()
	for total := 0; total < 5*rate; {
		n, err := c.Conn.Read(buffer)
		if err != nil {
			t.Fatalf("%d bytes, then %v", total, err)
		}
		total += n
		time.Sleep(time.Duration(total)*time.Second/rate - time.Since(begin))
	}
}

// TestWatchesDoNotKeepLargeAnswers: hundreds of watches that have much to tell leave room for a
// large answer, and for each other.
func TestWatchesDoNotKeepLargeAnswers(t *testing.T) {
	const watches, most = 99, 256 << 20
	answer := make([]byte, most) // which takes its time
	c := dialUnread(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/large" {
			_, _ = w.Write(answer)
			return
		}
		events(w, r)
	})
	c.open()
	for range watches {
		c.post("/", true)
	}
	large := c.post("/large", true)
	came := map[uint32]int{}
	for total := 0; len(came) < watches+1 || came[large] < 1<<20; {
		f, err := c.ReadFrame()
		c.must(err)
		d, ok := f.(*http2.DataFrame)
		if !ok {
			continue
		}
		came[d.StreamID] += len(d.Data())
		if total += len(d.Data()); total > most {
			t.Fatalf("of %d bytes %d are of the large answer, and %d of %d streams have some", total, came[large], len(came), watches+1)
		}
	}
}
