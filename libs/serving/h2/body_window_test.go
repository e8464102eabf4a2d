package h2_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"

	"golang.org/x/net/http2"

	"binnacle/libs/serving/h2"
)

// TestClosedBodyIsRefunded checks that data of a closed body is discarded and returned to the
// windows.
func TestClosedBodyIsRefunded(t *testing.T) {
	end := make(chan struct{})
	o := dialFlow(t, func(_ http.ResponseWriter, r *http.Request) {
		_ = r.Body.Close()
		<-end
	})
	const size = 1 << 20 // more than the window of a stream
	id := o.open("/", size)
	for remaining := size; remaining > 0; {
		o.await(func() bool { return o.sendable(id, remaining) > 0 })
		n := o.sendableNow(id, remaining)
		remaining -= n
		o.send(id, remaining == 0, make([]byte, n), nil)
	}
	close(end)
	o.await(func() bool { return o.ended[id] })
}

// TestLateReaderBuffersOnlyUnread checks that the buffer of a body does not grow with the bytes
// that were read.
func TestLateReaderBuffersOnlyUnread(t *testing.T) {
	const part, parts = 16 << 10, 500
	read := make(chan struct{})
	o := dialFlow(t, func(_ http.ResponseWriter, r *http.Request) {
		p := make([]byte, part)
		for range parts {
			<-read
			_, _ = io.ReadFull(r.Body, p)
			read <- struct{}{}
		}
	})
	heap := func() int {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	id := o.open("/", (parts+1)*part)
	one := func() {
		for remaining := part; remaining > 0; {
			o.await(func() bool { return o.sendable(id, remaining) > 0 })
			n := o.sendableNow(id, remaining)
			remaining -= n
			o.send(id, false, make([]byte, n), nil)
		}
	}
	before := heap()
	one()
	for range parts - 1 {
		one()
		read <- struct{}{}
		<-read
	}
	if more := heap() - before; more > parts*part/4 {
		t.Errorf("%d bytes are retained for a body with %d unread bytes, want at most %v", more, part, parts*part/4)
	}
	read <- struct{}{}
	<-read
}

// TestReadAfterBodyClose checks that a body with discarded data ends with an error, and one that
// was read completely with EOF.
func TestReadAfterBodyClose(t *testing.T) {
	for name, c := range map[string]struct {
		first int // bytes read before Close
		want  error
	}{
		"some of it": {first: 2, want: http.ErrBodyReadAfterClose},
		"all of it":  {first: 4, want: io.EOF},
	} {
		t.Run(name, func(t *testing.T) {
			started, received, got := make(chan struct{}), make(chan struct{}), make(chan error, 1)
			client := dialRaw(t, func(_ http.ResponseWriter, r *http.Request) {
				if n, err := r.Body.Read(nil); n != 0 || err != nil { // before any data arrives
					t.Errorf("Read(nil) = %d, %v, want 0", n, err)
				}
				close(started)
				<-received
				_, _ = io.ReadFull(r.Body, make([]byte, c.first))
				_ = r.Body.Close()
				_, err := r.Body.Read(make([]byte, 1))
				got <- err
			})
			client.sendHeaders(1, 0, getFields())
			<-started
			client.writeFrame(http2.FrameData, http2.FlagDataEndStream, 1, "text")
			client.ping()
			close(received)
			if err := <-got; !errors.Is(err, c.want) {
				t.Errorf("Read() = %v, want %v", err, c.want)
			}
		})
	}
}

// TestEndedBodyOpensNoWindow checks that no WINDOW_UPDATE is sent for a body that has ended or
// whose stream is closed.
func TestEndedBodyOpensNoWindow(t *testing.T) {
	for name, last := range map[string]func(c *rawClient){
		"that has come": func(c *rawClient) { c.writeFrame(http2.FrameData, http2.FlagDataEndStream, 1, "text") },
		"that is over":  func(c *rawClient) { c.must(c.WriteRSTStream(1, http2.ErrCodeCancel)) },
	} {
		t.Run(name, func(t *testing.T) {
			read, done := make(chan struct{}), make(chan struct{})
			client := dialRaw(t, func(_ http.ResponseWriter, r *http.Request) {
				<-read
				_, _ = r.Body.Read(make([]byte, 1))
				done <- struct{}{}
				<-read
			})
			client.sendHeaders(1, 0, getFields())
			last(client)
			client.ping()
			close(read)
			<-done
			client.must(client.WritePing(false, [8]byte{1}))
			for {
				f, err := client.ReadFrame()
				client.must(err)
				if f.Header().Type == http2.FramePing {
					return
				}
				if f, ok := f.(*http2.WindowUpdateFrame); ok && f.StreamID == 1 {
					t.Errorf("got a WINDOW_UPDATE of %d bytes for stream 1, want none", f.Increment)
				}
			}
		})
	}
}

// TestConcurrentBodyReaders checks that two concurrent readers get different bytes.
func TestConcurrentBodyReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe()
		over, got := make(chan struct{}), make(chan byte, 2)
		go func() {
			defer close(over)
			h2.NewServer(config()).ServeConn(context.Background(), newFakeWire(server),
				http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					_, _ = r.Body.Read(make([]byte, 1)) // without the other reader
					done := make(chan struct{})
					for range 2 {
						go func() {
							p := make([]byte, 1)
							_, _ = r.Body.Read(p)
							got <- p[0]
							done <- struct{}{}
						}()
					}
					<-done
					<-done
				}))
		}()
		c := &timedClient{
			rawClient: &rawClient{Framer: http2.NewFramer(client, client), Conn: client, t: t},
			events:    make(chan event, 100),
		}
		go c.readEvents()
		_, err := io.WriteString(client, http2.ClientPreface)
		c.must(errors.Join(err, c.WriteSettings()))
		c.writeFrame(http2.FrameHeaders, http2.FlagHeadersEndHeaders, 1, postRequest)
		c.writeFrame(http2.FrameData, 0, 1, "x")
		synctest.Wait()
		c.writeFrame(http2.FrameData, 0, 1, "a")
		c.writeFrame(http2.FrameData, 0, 1, "b")
		all := []byte{<-got, <-got}
		slices.Sort(all)
		if string(all) != "ab" {
			t.Errorf("read %q, want ab", all)
		}
		_ = client.Close()
		<-over
	})
}

// expectData reads until n bytes of a stream have arrived. It fails the test for more or empty
// data, or data of another stream.
func (c *rawClient) expectData(id uint32, n int) {
	c.t.Helper()
	for n > 0 {
		f, err := c.ReadFrame()
		c.must(err)
		if d, ok := f.(*http2.DataFrame); ok {
			n -= len(d.Data())
			if d.StreamID != id || n < 0 || len(d.Data()) == 0 {
				c.t.Fatalf("got %d bytes on stream %d, %d left on stream %d", len(d.Data()), d.StreamID, n, id)
			}
		}
	}
}

// TestConnectionWindowGoesToBlockedStream checks that a stream that waits for the connection window
// gets it, even if other streams wait for their own window or have ended.
func TestConnectionWindowGoesToBlockedStream(t *testing.T) {
	const window = 65535
	handler := func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 2*window)) }
	t.Run("another waits for its own window", func(t *testing.T) {
		c := dialRaw(t, handler)
		c.must(c.WriteWindowUpdate(0, 10_000))
		c.expectData(c.post("/", true), window)
		c.ping()
		id := c.post("/", true)
		c.expectData(id, 10_000)
		c.ping()
		for range 3 {
			c.must(c.WriteWindowUpdate(0, 1000))
			c.expectData(id, 1000)
		}
	})
	t.Run("another has ended", func(t *testing.T) {
		ended := make(chan struct{}, 2) // one for each request
		c := dialRaw(t, func(w http.ResponseWriter, r *http.Request) {
			handler(w, r)
			ended <- struct{}{}
		})
		c.must(c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20}))
		one := c.post("/", true)
		c.expectData(one, window)
		id := c.post("/", true)
		c.waitFor("200")
		c.ping()
		c.must(c.WriteRSTStream(one, http2.ErrCodeCancel))
		<-ended
		for range 3 {
			c.must(c.WriteWindowUpdate(0, 1000))
			c.expectData(id, 1000)
		}
	})
	t.Run("no empty DATA", func(t *testing.T) {
		c := dialRaw(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "text") })
		c.must(c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}))
		id := c.post("/", true)
		c.waitFor("200")
		c.must(c.WritePing(false, [8]byte{1}))
		for f := http2.Frame(nil); f == nil || f.Header().Type != http2.FramePing; {
			var err error
			f, err = c.ReadFrame()
			c.must(err)
			if f.Header().Type == http2.FrameData {
				t.Fatalf("got %d bytes of DATA while the window is closed, want none", f.Header().Length)
			}
		}
		c.must(c.WriteWindowUpdate(id, 3))
		c.expectData(id, 3)
		c.must(c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1}))
		c.expectData(id, 1)
	})
}
