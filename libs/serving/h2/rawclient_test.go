package h2_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"binnacle/libs/serving/h2"
)

// rawClient is a client over an unbuffered connection. The server can write only while the client
// reads.
type rawClient struct {
	*http2.Framer
	Conn  net.Conn
	t     *testing.T
	block bytes.Buffer
	hpack *hpack.Encoder
	id    uint32 // of the last stream
	ended chan any
}

// fakeWire is a wire without TLS.
type fakeWire struct {
	net.Conn
	accepted, outstanding *atomic.Int64
}

func dialWire(c net.Conn) h2.Wire { return newFakeWire(c) }

func newFakeWire(c net.Conn) fakeWire { return fakeWire{c, new(atomic.Int64), new(atomic.Int64)} }

// Write counts accepted bytes like a kernel with small buffers.
func (p fakeWire) Write(data []byte) (int, error) {
	const buffer = 1 << 10
	for done := 0; done < len(data); {
		p.outstanding.Store(int64(len(data) - done))
		n, err := p.Conn.Write(data[done:min(len(data), done+buffer)])
		p.accepted.Add(int64(n))
		done += n
		if err != nil {
			return done, err
		}
	}
	p.outstanding.Store(0)
	return len(data), nil
}

func (p fakeWire) Delivered() (int64, int64) { return p.accepted.Load(), p.outstanding.Load() }

func (fakeWire) ConnectionState() tls.ConnectionState {
	return tls.ConnectionState{Version: tls.VersionTLS13}
}
func (fakeWire) Cork()                    {}
func (fakeWire) Uncork() error            { return nil }
func (fakeWire) FramesReceived(int, int)  {}
func (fakeWire) Throttle()                {}
func (fakeWire) FramesSent(int, int, int) {}
func (fakeWire) AcquireHeaderPermit()     {}
func (fakeWire) ReleaseHeaderPermit()     {}
func (fakeWire) ReserveHeader(int) bool   { return true }

// dialRaw connects to a new server.
func dialRaw(t *testing.T, handler http.HandlerFunc) *rawClient {
	t.Helper()
	return dialServer(t, h2.NewServer(config()), func(c net.Conn) h2.Wire { return newFakeWire(c) }, handler)
}

// dialServer connects to a server over a wire.
func dialServer(t *testing.T, s *h2.Server, wire func(net.Conn) h2.Wire, handler http.HandlerFunc) *rawClient {
	t.Helper()
	client, server := net.Pipe()
	raw := &rawClient{Framer: http2.NewFramer(client, client), Conn: client, t: t, ended: make(chan any, 1)}
	raw.ReadMetaHeaders, raw.hpack = hpack.NewDecoder(4096, nil), hpack.NewEncoder(&raw.block)
	go func() {
		defer func() { raw.ended <- recover() }()
		s.ServeConn(context.Background(), wire(server), handler)
	}()
	t.Cleanup(func() {
		_ = client.Close()
		if v := <-raw.ended; v != nil {
			t.Errorf("the server panicked: %v, want nil", v)
		}
	})
	_, err := io.WriteString(client, http2.ClientPreface)
	raw.requireNoError(errors.Join(err, raw.WriteSettings()))
	return raw
}

func (c *rawClient) requireNoError(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// openPost starts a stream.
func (c *rawClient) openPost(path string, end bool, more ...hpack.HeaderField) uint32 {
	c.t.Helper()
	c.block.Reset()
	fields := []hpack.HeaderField{
		{Name: ":method", Value: "POST"},
		{Name: ":scheme", Value: "https"},
		{Name: ":authority", Value: "a"},
		{Name: ":path", Value: path},
	}
	for _, f := range append(fields, more...) {
		c.requireNoError(c.hpack.WriteField(f))
	}
	c.id += 2
	id := c.id - 1
	c.requireNoError(c.WriteHeaders(http2.HeadersFrameParam{
		StreamID:      id,
		BlockFragment: c.block.Bytes(),
		EndHeaders:    true,
		EndStream:     end,
	}))
	return id
}

// readStatuses reads until a stream ends, and returns the statuses of its responses.
func (c *rawClient) readStatuses(id uint32) (codes []string) {
	c.t.Helper()
	for {
		frame, err := c.ReadFrame()
		c.requireNoError(err)
		if frame.Header().StreamID != id {
			continue
		}
		if h, ok := frame.(*http2.MetaHeadersFrame); ok {
			codes = append(codes, h.PseudoValue("status"))
		}
		if t := frame.Header().Type; (t == http2.FrameHeaders || t == http2.FrameData) &&
			frame.Header().Flags.Has(http2.FlagDataEndStream) {
			return codes
		}
	}
}

// TestClosedStreamDropsQueuedFrames checks that queued frames of a closed stream are dropped.
func TestClosedStreamDropsQueuedFrames(t *testing.T) {
	const parts, part = 3, 8 << 10 // each causes a WINDOW_UPDATE
	read, gone := make(chan error), make(chan struct{})
	rawClient := dialRaw(t, func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/body" {
			return
		}
		for range parts {
			_, err := io.ReadFull(r.Body, make([]byte, part))
			read <- err
		}
		<-r.Context().Done()
		close(gone)
	})
	id := rawClient.openPost("/body", false)
	for range parts {
		rawClient.requireNoError(rawClient.WriteData(id, false, make([]byte, part)))
		rawClient.requireNoError(<-read)
	}
	rawClient.requireNoError(rawClient.WriteRSTStream(id, http2.ErrCodeCancel))
	<-gone
	if codes := rawClient.readStatuses(rawClient.openPost("/", true)); len(codes) != 1 || codes[0] != "200" {
		t.Errorf("another stream got %v, want 200", codes)
	}
}

// TestZeroWindowUpdateResetsStream checks that a WINDOW_UPDATE of 0 resets the stream, also after
// the response has ended.
func TestZeroWindowUpdateResetsStream(t *testing.T) {
	rawClient := dialRaw(t, func(http.ResponseWriter, *http.Request) {})
	id := rawClient.openPost("/", true)
	rawClient.readStatuses(id)
	rawClient.requireNoError(rawClient.WriteRawFrame(http2.FrameWindowUpdate, 0, id, make([]byte, 4)))
	for {
		f, err := rawClient.ReadFrame()
		rawClient.requireNoError(err)
		if f, ok := f.(*http2.RSTStreamFrame); ok {
			if f.StreamID != id || f.ErrCode != http2.ErrCodeProtocol {
				t.Errorf("got %v, want a protocol error", f)
			}
			return
		}
	}
}

// TestFramesAfterReset checks that frames on a stream that the server has reset are ignored,
// because the client may not know. Frames after the client's own reset are an error.
func TestFramesAfterReset(t *testing.T) {
	for name, resets := range map[string]bool{"client reset": true, "server reset only": false} {
		t.Run(name, func(t *testing.T) {
			rawClient := dialRaw(t, func(http.ResponseWriter, *http.Request) {})
			id := rawClient.openPost("/", false)
			for closed := false; !closed; { // the rest of the body is not needed
				f, err := rawClient.ReadFrame()
				rawClient.requireNoError(err)
				_, closed = f.(*http2.RSTStreamFrame)
			}
			if resets {
				rawClient.requireNoError(rawClient.WriteRSTStream(id, http2.ErrCodeCancel))
			}
			rawClient.id = id - 1
			rawClient.openPost("/", true)
			rawClient.requireNoError(rawClient.WritePing(false, [8]byte{}))
			for {
				f, err := rawClient.ReadFrame()
				rawClient.requireNoError(err)
				switch f := f.(type) {
				case *http2.PingFrame:
					if resets {
						t.Error("the client's own reset was forgotten")
					}
					return
				case *http2.GoAwayFrame:
					if !resets || f.ErrCode != http2.ErrCodeStreamClosed {
						t.Errorf("got %v, want STREAM_CLOSED after a client reset only", f)
					}
					return
				}
			}
		})
	}
}

// TestContinuePrecedesResponse checks the order of the 100 response and the final response.
func TestContinuePrecedesResponse(t *testing.T) {
	responses := make(chan struct{})
	rawClient := dialRaw(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		close(responses)
	})
	id := rawClient.openPost("/", false, hpack.HeaderField{Name: "expect", Value: "100-continue"})
	rawClient.requireNoError(rawClient.WriteData(id, true, []byte("the client did not wait")))
	<-responses
	if codes := rawClient.readStatuses(id); len(codes) != 2 || codes[0] != "100" || codes[1] != "200" {
		t.Errorf("statuses = %v, want 100 and 200", codes)
	}
}

// TestResetsOfClosedStreamsAreAccepted checks that thousands of client resets of streams that the
// server has reset do not end the connection.
func TestResetsOfClosedStreamsAreAccepted(t *testing.T) {
	const rounds, streams = 2, 6000 // more than a limit of 10,000 resets
	done := make(chan struct{})
	rawClient := dialRaw(t, func(_ http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
		done <- struct{}{}
	})
	for n := range rounds {
		for range streams {
			id := rawClient.openPost("/", true)
			rawClient.requireNoError(rawClient.WriteData(id, true, nil)) // DATA after END_STREAM
			rawClient.requireNoError(rawClient.WriteRSTStream(id, http2.ErrCodeCancel))
			<-done
		}
		ping := [8]byte{byte(n + 1)}
		rawClient.requireNoError(rawClient.WritePing(false, ping))
		for received := false; !received; {
			f, err := rawClient.ReadFrame()
			rawClient.requireNoError(err)
			p, ok := f.(*http2.PingFrame)
			received = ok && p.Data == ping
		}
	}
}

// TestStreamsShareConnection checks that two large responses on a connection progress together.
func TestStreamsShareConnection(t *testing.T) {
	const size = 32 << 20 // much more than the connection buffers
	started := make(chan struct{}, 2)
	response := make([]byte, size)
	rawClient := dialRaw(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "x/y")
		started <- struct{}{}
		_, _ = w.Write(response)
	})
	rawClient.requireNoError(rawClient.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: size}))
	firstStream, secondStream := rawClient.openPost("/", true), rawClient.openPost("/", true)
	<-started
	<-started
	rawClient.requireNoError(rawClient.WriteWindowUpdate(0, 2*size)) // until now neither has received much
	received := map[uint32]int{}
	for received[firstStream] < size && received[secondStream] < size {
		f, err := rawClient.ReadFrame()
		rawClient.requireNoError(err)
		if d, ok := f.(*http2.DataFrame); ok {
			received[d.StreamID] += len(d.Data())
		}
	}
	if least := min(received[firstStream], received[secondStream]); least < size/8 { // the other may have started late
		t.Errorf("one response is complete after %d bytes of the other, want at least %v", least, size/8)
	}
}

// TestQueuedResponsesLeaveOnceClientReads checks that responses that wait behind PING
// acknowledgments are sent once the client reads.
func TestQueuedResponsesLeaveOnceClientReads(t *testing.T) {
	const requests, pings = 8, 6000
	start, done := make(chan struct{}), make(chan struct{}, requests)
	rawClient := dialRaw(t, func(w http.ResponseWriter, r *http.Request) {
		<-start
		w.WriteHeader(http.StatusNoContent)
		w.(http.Flusher).Flush()
		done <- struct{}{}
	})
	for range requests {
		rawClient.openPost("/", true)
	}
	sent := make(chan error, 1)
	go func() {
		var err error
		for range pings {
			err = errors.Join(err, rawClient.WritePing(false, [8]byte{}))
		}
		sent <- err
	}()
	close(start)
	go func() {
		for {
			if _, err := rawClient.ReadFrame(); err != nil {
				return
			}
		}
	}()
	for range requests {
		<-done
	}
	rawClient.requireNoError(<-sent)
}

// TestMalformedLargeHeadersGet431 checks that a too large header section gets 431, although it is
// malformed.
func TestMalformedLargeHeadersGet431(t *testing.T) {
	rawClient := dialRaw(t, func(http.ResponseWriter, *http.Request) { t.Error("the handler was called") })
	more := []hpack.HeaderField{{Name: "content-length", Value: "nope"}}
	for range 20 {
		more = append(more, hpack.HeaderField{Name: "x", Value: string(bytes.Repeat([]byte("v"), 4000)), Sensitive: true})
	}
	rawClient.block.Reset()
	for _, headerField := range append([]hpack.HeaderField{
		{Name: ":method", Value: "POST"},
		{Name: ":scheme", Value: "https"},
		{Name: ":path", Value: "/"},
	}, more...) {
		rawClient.requireNoError(rawClient.hpack.WriteField(headerField))
	}
	block := rawClient.block.Bytes()
	sent := make(chan error, 1)
	go func() {
		err := rawClient.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block[:16<<10]})
		for block = block[16<<10:]; len(block) > 0; {
			n := min(len(block), 16<<10)
			err = errors.Join(err, rawClient.WriteContinuation(1, n == len(block), block[:n]))
			block = block[n:]
		}
		sent <- errors.Join(err, rawClient.WriteData(1, true, []byte("body")))
	}()
	if codes := rawClient.readStatuses(1); len(codes) != 1 || codes[0] != "431" {
		t.Errorf("statuses = %v, want 431", codes)
	}
	rawClient.requireNoError(<-sent)
}

// FuzzFrames checks that the server survives arbitrary input, and ends when the client closes the
// connection.
func FuzzFrames(f *testing.F) {
	var buf bytes.Buffer
	frames := http2.NewFramer(&buf, nil)
	if err := errors.Join(frames.WriteSettings(),
		frames.WriteHeaders(http2.HeadersFrameParam{
			StreamID:      1,
			BlockFragment: []byte("\x82\x87\x84\x41\x01a"),
			EndHeaders:    true,
		}),
		frames.WriteData(1, false, []byte("x")), frames.WriteWindowUpdate(1, 5), frames.WritePing(false, [8]byte{}),
		frames.WriteRSTStream(1, http2.ErrCodeCancel), frames.WriteGoAway(1, 0, nil)); err != nil {
		f.Fatal(err)
	}
	f.Add(buf.Bytes())
	f.Fuzz(func(t *testing.T, sent []byte) {
		client, server := net.Pipe()
		over := make(chan any)
		go func() {
			defer func() { over <- recover() }()
			h2.NewServer(config()).ServeConn(context.Background(), newFakeWire(server),
				http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					_, _ = io.Copy(w, r.Body)
				}))
		}()
		go func() { _, _ = io.Copy(io.Discard, client) }()
		_, _ = io.WriteString(client, http2.ClientPreface)
		_, _ = client.Write(sent)
		_ = client.Close()
		if v := <-over; v != nil {
			t.Error(v)
		}
	})
}
