package h2_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"golang.org/x/net/http2"

	"binnacle/libs/serving/h2"
)

// TestClosedBodyReturnsCredit checks that the server discards data of a closed body and returns its
// size to the windows, so that the client can send the rest.
func TestClosedBodyReturnsCredit(t *testing.T) {
	endHandler := make(chan struct{})
	client := dialFlow(t, func(_ http.ResponseWriter, r *http.Request) {
		_ = r.Body.Close()
		<-endHandler
	})
	const size = 1 << 20 // more than the window of a stream
	id := client.open("/", size)
	for remaining := size; remaining > 0; {
		client.await(func() bool { return client.sendable(id, remaining) > 0 })
		n := client.sendableNow(id, remaining)
		remaining -= n
		client.send(id, remaining == 0, make([]byte, n), nil)
	}
	close(endHandler)
	client.await(func() bool { return client.ended[id] })
}

// TestWindowGrowsOnlyWithReads checks that a client can send no more than the handler has read, or
// the initial window, while the handler waits before it reads on.
func TestWindowGrowsOnlyWithReads(t *testing.T) {
	const size, initial = 3 << 20, 65535
	for _, test := range []struct{ read, window int }{
		{read: 1, window: initial},
		{read: initial, window: initial},
		{read: 4 * initial, window: 4 * initial},
		{read: 2 << 20, window: 1 << 20},
	} {
		read, endHandler := make(chan struct{}), make(chan struct{})
		client := dialFlow(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.ReadFull(r.Body, make([]byte, test.read))
			close(read)
			<-endHandler
			_, _ = w.Write([]byte("x"))
		})
		id := client.open("/", size)
		for remaining := test.read; remaining > 0; {
			client.await(func() bool { return client.sendable(id, remaining) > 0 })
			n := client.sendableNow(id, remaining)
			remaining -= n
			client.send(id, false, make([]byte, n), nil)
		}
		<-read
		close(endHandler)
		client.await(func() bool { return client.ended[id] })
		client.mu.Lock()
		got := client.windows[id]
		client.mu.Unlock()
		if got > test.window || got < test.window/2 {
			t.Errorf("after %d bytes: the client can send %d bytes, want at most %d and at least half of it",
				test.read, got, test.window)
		}
	}
}

// TestBodyBuffersOnlyUnreadData checks that the buffer of a body does not keep the bytes that the
// handler has read, if the handler stays one part behind the client.
func TestBodyBuffersOnlyUnreadData(t *testing.T) {
	const partSize, parts = 16 << 10, 500
	nextPart := make(chan struct{}) // asks the handler to read a part, and then reports that it has
	client := dialFlow(t, func(_ http.ResponseWriter, r *http.Request) {
		part := make([]byte, partSize)
		for range parts {
			<-nextPart
			_, _ = io.ReadFull(r.Body, part)
			nextPart <- struct{}{}
		}
	})
	readPart := func() {
		nextPart <- struct{}{}
		<-nextPart
	}
	id := client.open("/", (parts+1)*partSize) // larger than what is sent, so that the body does not end
	sendPart := func() {
		for remaining := partSize; remaining > 0; {
			client.await(func() bool { return client.sendable(id, remaining) > 0 })
			n := client.sendableNow(id, remaining)
			remaining -= n
			client.send(id, false, make([]byte, n), nil)
		}
	}
	before := heapBytes()
	sendPart()
	for range parts - 1 {
		sendPart()
		readPart()
	}
	if grown, limit := heapBytes()-before, parts*partSize/4; grown > limit {
		t.Errorf("the heap grew by %d bytes with %d unread bytes of a body of %d, want at most %d",
			grown, partSize, parts*partSize, limit)
	}
	readPart()
}

// heapBytes returns the size of the live objects of the heap.
func heapBytes() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// TestReadAfterBodyClose checks that Read after Close returns EOF if the handler had read the whole
// body, and otherwise ErrBodyReadAfterClose.
func TestReadAfterBodyClose(t *testing.T) {
	const body = "text"
	for name, test := range map[string]struct {
		readBeforeClose int // bytes
		want            error
	}{
		"closed with unread data": {readBeforeClose: 2, want: http.ErrBodyReadAfterClose},
		"closed after all data":   {readBeforeClose: len(body), want: io.EOF},
	} {
		t.Run(name, func(t *testing.T) {
			started, bodyReceived, got := make(chan struct{}), make(chan struct{}), make(chan error, 1)
			client := dialRaw(t, func(_ http.ResponseWriter, r *http.Request) {
				if n, err := r.Body.Read(nil); n != 0 || err != nil { // before any data arrives
					t.Errorf("Read(nil) = %d, %v, want 0, nil", n, err)
				}
				close(started)
				<-bodyReceived
				_, _ = io.ReadFull(r.Body, make([]byte, test.readBeforeClose))
				_ = r.Body.Close()
				_, err := r.Body.Read(make([]byte, 1))
				got <- err
			})
			client.sendHeaders(1, 0, getFields())
			<-started
			client.writeFrame(http2.FrameData, http2.FlagDataEndStream, 1, body)
			client.ping() // the server has processed the body when it responds
			close(bodyReceived)
			if err := <-got; !errors.Is(err, test.want) {
				t.Errorf("Read() after Close() = %v, want %v", err, test.want)
			}
		})
	}
}

// TestEndedBodyOpensNoWindow checks that reading a body sends no WINDOW_UPDATE for its stream after
// the client has ended the request or reset the stream.
func TestEndedBodyOpensNoWindow(t *testing.T) {
	// Three frames are more than the quarter of the initial window from which a WINDOW_UPDATE is
	// sent while a request goes on, and less than the window.
	const frameSize, frames = 16 << 10, 3
	for name, test := range map[string]struct {
		end      func(c *rawClient)
		wantRead int
	}{
		"END_STREAM": {
			end:      func(c *rawClient) { c.writeFrame(http2.FrameData, http2.FlagDataEndStream, 1, "") },
			wantRead: frames * frameSize,
		},
		"RST_STREAM": {
			end:      func(c *rawClient) { c.requireNoError(c.WriteRSTStream(1, http2.ErrCodeCancel)) },
			wantRead: 0, // the server discards the body of a canceled request
		},
	} {
		t.Run(name, func(t *testing.T) {
			startReading, read, endHandler := make(chan struct{}), make(chan int, 1), make(chan struct{})
			client := dialRaw(t, func(_ http.ResponseWriter, r *http.Request) {
				<-startReading
				body, _ := io.ReadAll(r.Body)
				read <- len(body)
				<-endHandler // the stream of a complete request stays open
			})
			defer close(endHandler)
			// 1. Send the whole request. The ping shows that the server has processed it.
			client.sendHeaders(1, 0, getFields())
			for range frames {
				client.writeFrame(http2.FrameData, 0, 1, string(make([]byte, frameSize)))
			}
			test.end(client)
			client.ping()
			// 2. Let the handler read the body, and then send another ping.
			close(startReading)
			go func() {
				if n := <-read; n != test.wantRead {
					t.Errorf("the handler read %d bytes, want %d", n, test.wantRead)
				}
				if err := client.WritePing(false, [8]byte{1}); err != nil {
					t.Errorf("WritePing() = %v, want nil", err)
				}
			}()
			// 3. No WINDOW_UPDATE of the stream arrives before the response to the second ping.
			for {
				frame, err := client.ReadFrame()
				client.requireNoError(err)
				if frame.Header().Type == http2.FramePing {
					return
				}
				if frame, ok := frame.(*http2.WindowUpdateFrame); ok && frame.StreamID == 1 {
					t.Errorf("got a WINDOW_UPDATE of %d bytes for stream 1, want none", frame.Increment)
				}
			}
		})
	}
}

// TestConcurrentBodyReadersGetDifferentBytes checks that two goroutines that read a body at the same
// time get different bytes of it.
func TestConcurrentBodyReadersGetDifferentBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe()
		connEnded, got := make(chan struct{}), make(chan byte, 2)
		go func() {
			defer close(connEnded)
			h2.NewServer(config()).ServeConn(context.Background(), newFakeWire(server),
				http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					_, _ = r.Body.Read(make([]byte, 1)) // the first byte, before the concurrent reads
					var readers sync.WaitGroup
					for range 2 {
						readers.Go(func() {
							p := make([]byte, 1)
							_, _ = r.Body.Read(p)
							got <- p[0]
						})
					}
					readers.Wait()
				}))
		}()
		c := &timedClient{
			rawClient: &rawClient{Framer: http2.NewFramer(client, client), Conn: client, t: t},
			events:    make(chan event, 100),
		}
		go c.readEvents()
		_, err := io.WriteString(client, http2.ClientPreface)
		c.requireNoError(errors.Join(err, c.WriteSettings()))
		c.writeFrame(http2.FrameHeaders, http2.FlagHeadersEndHeaders, 1, postRequest)
		c.writeFrame(http2.FrameData, 0, 1, "x")
		synctest.Wait() // both goroutines wait in Read
		c.writeFrame(http2.FrameData, 0, 1, "a")
		c.writeFrame(http2.FrameData, 0, 1, "b")
		all := []byte{<-got, <-got}
		slices.Sort(all)
		if string(all) != "ab" {
			t.Errorf("two concurrent readers of \"ab\" got %q, want a and b", all)
		}
		_ = client.Close()
		<-connEnded
	})
}

// expectData reads until n bytes of a stream have arrived. It fails the test for more or empty
// data, or data of another stream.
func (c *rawClient) expectData(id uint32, n int) {
	c.t.Helper()
	for missing := n; missing > 0; {
		f, err := c.ReadFrame()
		c.requireNoError(err)
		if d, ok := f.(*http2.DataFrame); ok {
			size := len(d.Data())
			if d.StreamID != id || size > missing || size == 0 {
				c.t.Fatalf("got DATA of %d bytes on stream %d, want between 1 and %d bytes on stream %d",
					size, d.StreamID, missing, id)
			}
			missing -= size
		}
	}
}

// initialSendWindow is the size in bytes of the send windows of a connection and of its streams
// until the client changes them.
const initialSendWindow = 65535

// exceedSendWindow is a handler whose response needs more than the initial send windows.
func exceedSendWindow(w http.ResponseWriter, _ *http.Request) {
	_, _ = w.Write(make([]byte, 2*initialSendWindow))
}

// TestStreamGetsConnectionWindowWhileAnotherWaits checks that a stream gets the bytes of the
// connection window that another stream cannot use, because its own window is exhausted.
func TestStreamGetsConnectionWindowWhileAnotherWaits(t *testing.T) {
	const extra = 10_000 // bytes of the connection window that the first stream leaves
	rawClient := dialRaw(t, exceedSendWindow)
	// 1. The first stream exhausts its window, and the second the connection window.
	rawClient.requireNoError(rawClient.WriteWindowUpdate(0, extra))
	rawClient.expectData(rawClient.openPost("/", true), initialSendWindow)
	rawClient.ping()
	second := rawClient.openPost("/", true)
	rawClient.expectData(second, extra)
	rawClient.ping()
	// 2. Every increase of the connection window goes to the second stream.
	for range 3 {
		rawClient.requireNoError(rawClient.WriteWindowUpdate(0, 1000))
		rawClient.expectData(second, 1000)
	}
}

// TestStreamGetsConnectionWindowAfterAnotherEnds checks that a stream gets the connection window
// after a stream that waited for the window before it was reset.
func TestStreamGetsConnectionWindowAfterAnotherEnds(t *testing.T) {
	handlerEnded := make(chan struct{}, 2) // one for each request
	rawClient := dialRaw(t, func(w http.ResponseWriter, r *http.Request) {
		exceedSendWindow(w, r)
		handlerEnded <- struct{}{}
	})
	// 1. The first stream exhausts the connection window, so that both streams wait for it.
	rawClient.requireNoError(rawClient.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20}))
	first := rawClient.openPost("/", true)
	rawClient.expectData(first, initialSendWindow)
	second := rawClient.openPost("/", true)
	rawClient.waitFor("200")
	rawClient.ping()
	// 2. The client resets the first stream.
	rawClient.requireNoError(rawClient.WriteRSTStream(first, http2.ErrCodeCancel))
	<-handlerEnded
	// 3. Every increase of the connection window goes to the second stream.
	for range 3 {
		rawClient.requireNoError(rawClient.WriteWindowUpdate(0, 1000))
		rawClient.expectData(second, 1000)
	}
}

// TestResetStreamPassesConnectionWindowOn checks that bytes of the connection window are used if the
// client opens the window and resets the stream that is next to use it in one write.
func TestResetStreamPassesConnectionWindowOn(t *testing.T) {
	const increase = 1000
	rawClient := dialRaw(t, exceedSendWindow)
	// 1. The first stream exhausts the connection window, so that all streams wait for it.
	rawClient.requireNoError(rawClient.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20}))
	waiting := []uint32{rawClient.openPost("/", true)}
	rawClient.expectData(waiting[0], initialSendWindow)
	for range 7 {
		waiting = append(waiting, rawClient.openPost("/", true))
		rawClient.waitFor("200")
		rawClient.ping()
	}
	for len(waiting) > 1 {
		// 2. Open the window and reset the stream that has waited longest.
		next := waiting[0]
		var frames bytes.Buffer
		framer := http2.NewFramer(&frames, nil)
		rawClient.requireNoError(errors.Join(framer.WriteWindowUpdate(0, increase), framer.WriteRSTStream(next, http2.ErrCodeCancel)))
		_, err := rawClient.Conn.Write(frames.Bytes())
		rawClient.requireNoError(err)
		// 3. Either that stream or the following one sends as many bytes.
		var sender uint32
		for missing := increase; missing > 0; {
			frame, err := rawClient.ReadFrame()
			rawClient.requireNoError(err)
			if data, ok := frame.(*http2.DataFrame); ok {
				sender = data.StreamID
				missing -= len(data.Data())
			}
		}
		waiting = waiting[1:]
		if sender != next { // the sender waits again, after the others
			waiting = append(slices.DeleteFunc(waiting, func(id uint32) bool { return id == sender }), sender)
		}
	}
}

// TestClosedStreamWindowSendsNoEmptyData checks that the server sends no DATA frame while the window
// of a stream is 0, and as many bytes as the client then permits.
func TestClosedStreamWindowSendsNoEmptyData(t *testing.T) {
	rawClient := dialRaw(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "text") })
	rawClient.requireNoError(rawClient.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}))
	id := rawClient.openPost("/", true)
	rawClient.waitFor("200")
	rawClient.requireNoError(rawClient.WritePing(false, [8]byte{1}))
	for frame := http2.Frame(nil); frame == nil || frame.Header().Type != http2.FramePing; {
		var err error
		frame, err = rawClient.ReadFrame()
		rawClient.requireNoError(err)
		if frame.Header().Type == http2.FrameData {
			t.Fatalf("got DATA of %d bytes while the window is 0, want none", frame.Header().Length)
		}
	}
	rawClient.requireNoError(rawClient.WriteWindowUpdate(id, 3))
	rawClient.expectData(id, 3)
	rawClient.requireNoError(rawClient.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1}))
	rawClient.expectData(id, 1)
}
