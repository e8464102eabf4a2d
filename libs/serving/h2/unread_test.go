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

// TestBodiesThatNobodyWants are thrown away as they come, and their room is given back.
func TestBodiesThatNobodyWants(t *testing.T) {
	end := make(chan struct{})
	o := dialObedient(t, func(_ http.ResponseWriter, r *http.Request) {
		_ = r.Body.Close()
		<-end
	})
	const size = 1 << 20 // more than a stream may send unread
	id := o.open("/", size)
	for left := size; left > 0; {
		o.await(func() bool { return o.may(id, left) > 0 })
		n := o.now(id, left)
		left -= n
		o.send(id, left == 0, make([]byte, n), nil)
	}
	close(end)
	o.await(func() bool { return o.ended[id] })
}

// TestBodiesThatAreReadLate take no more room than what is unread of them.
func TestBodiesThatAreReadLate(t *testing.T) {
	const part, parts = 16 << 10, 500
	read := make(chan struct{})
	o := dialObedient(t, func(_ http.ResponseWriter, r *http.Request) {
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
		for left := part; left > 0; {
			o.await(func() bool { return o.may(id, left) > 0 })
			n := o.now(id, left)
			left -= n
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
		t.Errorf("%d bytes are kept of a body of which %d are unread", more, part)
	}
	read <- struct{}{}
	<-read
}

// TestWhatIsReadAfterTheEnd: a body of which something was thrown away is not taken for whole, and one
// that was read is.
func TestWhatIsReadAfterTheEnd(t *testing.T) {
	for name, c := range map[string]struct {
		first int // bytes that are read before
		want  error
	}{"some of it": {2, http.ErrBodyReadAfterClose}, "all of it": {4, io.EOF}} {
		t.Run(name, func(t *testing.T) {
			begun, came, got := make(chan struct{}), make(chan struct{}), make(chan error, 1)
			client := dialUnread(t, func(_ http.ResponseWriter, r *http.Request) {
				if n, err := r.Body.Read(nil); n != 0 || err != nil { // before anything comes
					t.Errorf("nothing is read as %d, %v", n, err)
				}
				close(begun)
				<-came
				_, _ = io.ReadFull(r.Body, make([]byte, c.first))
				_ = r.Body.Close()
				_, err := r.Body.Read(make([]byte, 1))
				got <- err
			})
			client.ask(1, 0, asking())
			<-begun
			client.raw(http2.FrameData, http2.FlagDataEndStream, 1, "text")
			client.lives()
			close(came)
			if err := <-got; !errors.Is(err, c.want) {
				t.Errorf("it ends with %v, want %v", err, c.want)
			}
		})
	}
}

// TestNothingMoreIsAskedFor of a body that has come, or whose stream is over, whenever it is read.
func TestNothingMoreIsAskedFor(t *testing.T) {
	for name, last := range map[string]func(c *unread){
		"that has come": func(c *unread) { c.raw(http2.FrameData, http2.FlagDataEndStream, 1, "text") },
		"that is over":  func(c *unread) { c.must(c.WriteRSTStream(1, http2.ErrCodeCancel)) },
	} {
		t.Run(name, func(t *testing.T) {
			read, done := make(chan struct{}), make(chan struct{})
			client := dialUnread(t, func(_ http.ResponseWriter, r *http.Request) {
				<-read
				_, _ = r.Body.Read(make([]byte, 1))
				done <- struct{}{}
				<-read
			})
			client.ask(1, 0, asking())
			last(client)
			client.lives()
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
					t.Errorf("%d bytes more are asked for", f.Increment)
				}
			}
		})
	}
}

// TestTwoReaders of one body have each what they are told of.
func TestTwoReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe()
		over, got := make(chan struct{}), make(chan byte, 2)
		go func() {
			defer close(over)
			h2.NewServer(config()).ServeConn(context.Background(), newPlain(server), http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				_, _ = r.Body.Read(make([]byte, 1)) // the first is alone
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
		c := &timed{unread: &unread{Framer: http2.NewFramer(client, client), Conn: client, t: t}, heard: make(chan event, 100)}
		go c.listen()
		_, err := io.WriteString(client, http2.ClientPreface)
		c.must(errors.Join(err, c.WriteSettings()))
		c.raw(http2.FrameHeaders, http2.FlagHeadersEndHeaders, 1, post)
		c.raw(http2.FrameData, 0, 1, "x")
		synctest.Wait()
		c.raw(http2.FrameData, 0, 1, "a")
		c.raw(http2.FrameData, 0, 1, "b")
		all := []byte{<-got, <-got}
		if slices.Sort(all); string(all) != "ab" {
			t.Errorf("%q is read of ab", all)
		}
		_ = client.Close()
		<-over
	})
}

// takes reads until n bytes of data of a stream have come; no more may, and none that are empty.
func (c *unread) takes(id uint32, n int) {
	c.t.Helper()
	for n > 0 {
		f, err := c.ReadFrame()
		c.must(err)
		if d, ok := f.(*http2.DataFrame); ok {
			if n -= len(d.Data()); d.StreamID != id || n < 0 || len(d.Data()) == 0 {
				c.t.Fatalf("%d bytes of %d come, %d are wanted of %d", len(d.Data()), d.StreamID, n, id)
			}
		}
	}
}

// TestWindowsAreForWhoNeedsThem: who waits for the window of the connection has it, whoever waits for his
// own, or does not wait any more.
func TestWindowsAreForWhoNeedsThem(t *testing.T) {
	const window = 65535
	handler := func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 2*window)) }
	t.Run("another waits for his own", func(t *testing.T) {
		c := dialUnread(t, handler)
		c.must(c.WriteWindowUpdate(0, 10_000))
		c.takes(c.post("/", true), window)
		c.lives()
		id := c.post("/", true)
		c.takes(id, 10_000)
		c.lives()
		for range 3 {
			c.must(c.WriteWindowUpdate(0, 1000))
			c.takes(id, 1000)
		}
	})
	t.Run("another is over", func(t *testing.T) {
		ended := make(chan struct{}, 2) // one for each request
		c := dialUnread(t, func(w http.ResponseWriter, r *http.Request) {
			handler(w, r)
			ended <- struct{}{}
		})
		c.must(c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20}))
		one := c.post("/", true)
		c.takes(one, window)
		id := c.post("/", true)
		c.until("200")
		c.lives()
		c.must(c.WriteRSTStream(one, http2.ErrCodeCancel))
		<-ended
		for range 3 {
			c.must(c.WriteWindowUpdate(0, 1000))
			c.takes(id, 1000)
		}
	})
	t.Run("nobody sends nothing", func(t *testing.T) {
		c := dialUnread(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "text") })
		c.must(c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}))
		id := c.post("/", true)
		c.until("200")
		c.must(c.WritePing(false, [8]byte{1}))
		for f := http2.Frame(nil); f == nil || f.Header().Type != http2.FramePing; {
			var err error
			f, err = c.ReadFrame()
			c.must(err)
			if f.Header().Type == http2.FrameData {
				t.Fatalf("%d bytes come where there is no window", f.Header().Length)
			}
		}
		c.must(c.WriteWindowUpdate(id, 3))
		c.takes(id, 3)
		c.must(c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1}))
		c.takes(id, 1)
	})
}
