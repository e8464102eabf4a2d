package serving

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// unread is a connection of HTTP/2 whose server can write only when the client reads:
// until then all its frames wait.
type unread struct {
	*http2.Framer
	t     *testing.T
	block bytes.Buffer
	hpack *hpack.Encoder
	id    uint32 // of the last stream
	ended chan any
}

// told tells which streams frames are pushed for.
type told struct {
	*order
	of func(stream uint32)
}

func (o told) Push(f http2.FrameWriteRequest) {
	o.order.Push(f)
	o.of(f.StreamID())
}

// dialUnread connects; pushed is called with the stream of each frame that the server has.
func dialUnread(t *testing.T, pushed func(stream uint32), handler http.HandlerFunc) *unread {
	t.Helper()
	client, server := net.Pipe()
	c := &unread{Framer: http2.NewFramer(client, client), t: t, ended: make(chan any, 1)}
	c.ReadMetaHeaders, c.hpack = hpack.NewDecoder(4096, nil), hpack.NewEncoder(&c.block)
	gatherFrames()
	go func() {
		defer func() { c.ended <- recover() }()
		s := &http2.Server{NewWriteScheduler: func() http2.WriteScheduler { return told{newOrder(), pushed} }}
		s.ServeConn(server, &http2.ServeConnOpts{Handler: handler})
	}()
	t.Cleanup(func() {
		_ = client.Close()
		if v := <-c.ended; v != nil {
			t.Errorf("the server panics: %v", v)
		}
	})
	_, err := io.WriteString(client, http2.ClientPreface)
	c.must(errors.Join(err, c.WriteSettings()))
	return c
}

func (c *unread) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// post begins a stream.
func (c *unread) post(path string, end bool, more ...hpack.HeaderField) uint32 {
	c.t.Helper()
	c.block.Reset()
	fields := []hpack.HeaderField{{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "https"}, {Name: ":authority", Value: "a"}, {Name: ":path", Value: path}}
	for _, f := range append(fields, more...) {
		c.must(c.hpack.WriteField(f))
	}
	c.id += 2
	id := c.id - 1
	c.must(c.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: c.block.Bytes(), EndHeaders: true, EndStream: end}))
	return id
}

// answers reads until a stream ends, and returns the codes that came.
func (c *unread) answers(id uint32) (codes []string) {
	c.t.Helper()
	for {
		f, err := c.ReadFrame()
		c.must(err)
		if f.Header().StreamID != id {
			continue
		}
		if h, ok := f.(*http2.MetaHeadersFrame); ok {
			codes = append(codes, h.PseudoValue("status"))
		}
		if t := f.Header().Type; (t == http2.FrameHeaders || t == http2.FrameData) && f.Header().Flags.Has(http2.FlagDataEndStream) {
			return codes
		}
	}
}

// TestClosedStreamsHaveNoFrames: what waited for a stream is gone with it: the server
// would end the connection, with all its streams, if it were given any of that.
func TestClosedStreamsHaveNoFrames(t *testing.T) {
	const parts, part = 3, 8 << 10 // each makes a WINDOW_UPDATE
	read, gone := make(chan error), make(chan struct{})
	c := dialUnread(t, func(uint32) {}, func(_ http.ResponseWriter, r *http.Request) {
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
	id := c.post("/body", false)
	for range parts {
		c.must(c.WriteData(id, false, make([]byte, part)))
		c.must(<-read)
	}
	c.must(c.WriteRSTStream(id, http2.ErrCodeCancel))
	<-gone
	if codes := c.answers(c.post("/", true)); len(codes) != 1 || codes[0] != "200" {
		t.Errorf("another stream is answered with %v", codes)
	}
}

// TestFramesOfAStreamKeepTheirOrder: what a client waits for before it sends a body comes
// before the answer.
func TestFramesOfAStreamKeepTheirOrder(t *testing.T) {
	frames, both := 0, make(chan struct{})
	c := dialUnread(t, func(stream uint32) {
		if stream != 1 {
			return
		}
		if frames++; frames == 2 {
			close(both)
		}
	}, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
	})
	id := c.post("/", false, hpack.HeaderField{Name: "expect", Value: "100-continue"})
	c.must(c.WriteData(id, true, []byte("the client did not wait")))
	<-both
	if codes := c.answers(id); len(codes) != 2 || codes[0] != "100" || codes[1] != "200" {
		t.Errorf("the answers are %v", codes)
	}
}

// TestResetsOfClosedStreamsAreCounted: the server resets streams that their client resets
// too; it is given all the resets back, or would end the connection after so many.
func TestResetsOfClosedStreamsAreCounted(t *testing.T) {
	const rounds, streams = 2, 6000 // the server stands 10,000 that wait
	done := make(chan struct{})
	c := dialUnread(t, func(uint32) {}, func(_ http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
		done <- struct{}{}
	})
	for n := range rounds {
		for range streams {
			id := c.post("/", true)
			c.must(c.WriteData(id, true, nil)) // which must not be
			c.must(c.WriteRSTStream(id, http2.ErrCodeCancel))
			<-done
		}
		ping := [8]byte{byte(n + 1)}
		c.must(c.WritePing(false, ping))
		for came := false; !came; {
			f, err := c.ReadFrame()
			c.must(err)
			p, ok := f.(*http2.PingFrame)
			came = ok && p.Data == ping
		}
	}
}
