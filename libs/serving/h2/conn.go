package h2

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

const (
	// greeting is how long a client may take to say that it speaks HTTP/2.
	greeting = 10 * time.Second
	// unread is the window of a body, in bytes, until its handler begins to read it, and receives
	// the window afterwards. ofAll is the least window of all bodies together; see receivesAll.
	unread   = initialWindow
	receives = 1 << 20
	ofAll    = 16 << 20
	// headerTable is what HPACK keeps of each direction, in bytes.
	headerTable = 4096
	// fieldOverhead is what an advertised size of header fields has for each of usualFields.
	fieldOverhead, usualFields = 32, 10
	// queued is how many requests wait, for each stream that may be open, until handlers end
	// whose streams are closed.
	queued = 4
)

// longAgo is a deadline that has passed.
var longAgo = time.Unix(1, 0)

// conn is a connection.
type conn struct {
	server  *Server
	config  *Config
	wire    Wire
	handler http.Handler
	ctx     context.Context // of all requests
	cancel  context.CancelFunc
	tls     *tls.ConnectionState
	remote  string
	log     *slog.Logger
	born    time.Time
	timer   *time.Timer
	heard   atomic.Int64 // when something came last, since born

	// Of the goroutine that reads.
	r               *bufio.Reader
	block           block
	names           map[string]string // canonical names of header fields
	resets, control int               // that have not been told of yet

	mu       sync.Mutex
	err      error // why nothing is sent any more
	streams  map[uint32]*stream
	last     uint32 // the newest stream of the client
	closed   ring   // streams that were closed lately
	running  int    // handlers
	waiting  []*stream
	idle     time.Duration // when the last stream was closed, since born
	leaving  bool          // GOAWAY was sent
	in       window        // what the client may send
	out      int64         // what it takes, over all streams
	outFirst int64         // what it takes of a new stream
	encoder  *hpack.Encoder
	encoded  bytes.Buffer
	schedule
	delivery
}

func newConn(ctx context.Context, s *Server, w Wire, handler http.Handler) *conn {
	c := &conn{
		server: s, config: &s.config, wire: w, handler: handler, log: s.config.Logger, born: time.Now(),
		remote:  w.RemoteAddr().String(),
		streams: map[uint32]*stream{}, names: map[string]string{},
		in: window{left: initialWindow}, out: initialWindow, outFirst: initialWindow,
	}
	c.r = bufio.NewReader(reading{c})
	state := w.ConnectionState()
	c.tls = &state
	c.ctx, c.cancel = context.WithCancel(ctx)
	c.room.L = &c.mu
	c.encoder = hpack.NewEncoder(&c.encoded)
	c.encoder.SetMaxDynamicTableSizeLimit(headerTable)
	c.block.init(s.config.MaxHeaderBytes+fieldOverhead*usualFields, c.wire)
	return c
}

func (c *conn) now() time.Duration { return time.Since(c.born) }

// serve reads until the connection ends.
func (c *conn) serve() {
	c.mu.Lock()
	c.idle = c.now()
	c.timer = time.AfterFunc(never, c.tick)
	c.wakeAfter(min(c.config.IdleTimeout, c.config.PingAfter))
	c.greet()
	c.mu.Unlock()
	if !c.server.add(c) { // after the greeting, which comes first
		c.goAway()
	}
	defer c.end() // whatever happens
	err := c.read()
	var against *connError
	if errors.As(err, &against) {
		c.sayGoodbye(against)
	}
}

// end ends what is left of the connection.
func (c *conn) end() {
	c.mu.Lock()
	c.fail(errGone)
	c.mu.Unlock()
	c.timer.Stop()
	c.cancel()
	_ = c.wire.Close() // the client may have closed it
}

// greet says what the server allows. The caller holds mu.
func (c *conn) greet() {
	c.queue.put(appendSettings(c.scratch[:0],
		http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: uint32(c.config.MaxStreams)},
		http2.Setting{ID: http2.SettingMaxHeaderListSize, Val: uint32(c.block.limit)},
		http2.Setting{ID: http2.SettingInitialWindowSize, Val: unread},
	))
	c.queue.put(appendWindowUpdate(c.scratch[:0], 0, c.receivesAll()-c.in.left))
	c.in = window{left: c.receivesAll(), step: receives / 4}
}

// receivesAll is what a client may send of all bodies, in bytes: if every stream that it may open
// has one that no handler reads yet, there is room for one that is read.
func (c *conn) receivesAll() int64 {
	return min(max(ofAll, int64(c.config.MaxStreams)*unread+receives), largestWindow)
}

// read works on what the client sends, until an error.
func (c *conn) read() error {
	if badCipher(c.tls) {
		return broken(http2.ErrCodeInadequateSecurity, "a cipher suite that HTTP/2 forbids")
	}
	if err := c.wire.SetReadDeadline(time.Now().Add(greeting)); err != nil {
		return err
	}
	c.mu.Lock()
	c.flushAsync()
	c.mu.Unlock()
	preface := make([]byte, len(http2.ClientPreface))
	if _, err := io.ReadFull(c.r, preface); err != nil {
		return err
	}
	if string(preface) != http2.ClientPreface {
		return broken(http2.ErrCodeProtocol, "not the preface of HTTP/2")
	}
	for greeted := false; ; {
		h, err := c.next()
		if err != nil {
			return err
		}
		if !greeted {
			if h.kind != http2.FrameSettings || h.has(http2.FlagSettingsAck) {
				return broken(http2.ErrCodeProtocol, "settings have to come first")
			}
			if err := c.wire.SetReadDeadline(time.Time{}); err != nil {
				return err
			}
			greeted = true
		}
		if err := c.take(h); err != nil {
			var of *streamError
			if !errors.As(err, &of) {
				return err
			}
			c.mu.Lock()
			c.reset(of.stream, of.code)
			c.mu.Unlock()
		}
	}
}

// take works on a frame.
func (c *conn) take(h head) error {
	if c.block.open != 0 && (h.kind != http2.FrameContinuation || h.stream != c.block.open) {
		return broken(http2.ErrCodeProtocol, "headers that do not end")
	}
	if h.kind == http2.FrameData {
		return c.data(h)
	}
	p, large, err := c.payload(h.length)
	if err != nil {
		return err
	}
	err = c.act(h, p)
	if large != nil {
		framePayloads.Put(large)
	} else {
		_, _ = c.r.Discard(h.length)
	}
	return err
}

// act works on a frame that is not of data.
func (c *conn) act(h head, p []byte) error {
	switch h.kind {
	case http2.FrameHeaders:
		return c.headers(h, p)
	case http2.FrameContinuation:
		return c.continuation(h, p)
	case http2.FramePriority:
		return priority(h, p)
	case http2.FrameRSTStream:
		return c.resetByClient(h, p)
	case http2.FrameSettings:
		return c.settings(h, p)
	case http2.FramePushPromise:
		return broken(http2.ErrCodeProtocol, "a client does not push")
	case http2.FramePing:
		return c.ping(h, p)
	case http2.FrameGoAway:
		switch {
		case h.stream != 0:
			return broken(http2.ErrCodeProtocol, "GOAWAY of a stream")
		case len(p) < 8:
			return broken(http2.ErrCodeFrameSize, "GOAWAY that is too short")
		}
		c.goAway()
	case http2.FrameWindowUpdate:
		return c.windowUpdate(h, p)
	}
	return nil // of an extension
}

func priority(h head, p []byte) error {
	switch {
	case h.stream == 0:
		return broken(http2.ErrCodeProtocol, "a priority of no stream")
	case len(p) != 5:
		return &streamError{h.stream, http2.ErrCodeFrameSize}
	case dependsOn(p) == h.stream:
		return &streamError{h.stream, http2.ErrCodeProtocol}
	}
	return nil
}

func (c *conn) ping(h head, p []byte) error {
	switch {
	case h.stream != 0:
		return broken(http2.ErrCodeProtocol, "a ping of a stream")
	case len(p) != 8:
		return broken(http2.ErrCodeFrameSize, "a ping of another size")
	case h.has(http2.FlagPingAck):
		return nil // any frame is a sign of life
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queue.put(appendPing(c.scratch[:0], http2.FlagPingAck, p))
	return nil
}

// resetByClient closes a stream.
func (c *conn) resetByClient(h head, p []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case len(p) != 4:
		return broken(http2.ErrCodeFrameSize, "a reset of another size")
	case h.stream == 0 || c.isIdle(h.stream):
		return broken(http2.ErrCodeProtocol, "a reset of a stream that is not")
	}
	if s := c.streams[h.stream]; s != nil {
		c.close(s, errReset)
	} else {
		c.closed.resetToo(h.stream) // its client sends nothing more of it
	}
	return nil
}

// isIdle tells streams that have not been opened, and may be. The caller holds mu.
func (c *conn) isIdle(id uint32) bool { return id%2 == 0 || id > c.last && !c.leaving }

var (
	errSilent = errors.New("the client gave no sign of life")
	errReset  = errors.New("the client has reset the stream")
	errGone   = errors.New("the connection is closed")
)

// goAway has the client open no streams any more.
func (c *conn) goAway() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leave(http2.ErrCodeNo)
}

// leave is goAway for whoever holds mu.
func (c *conn) leave(code http2.ErrCode) {
	if c.leaving || c.err != nil {
		return
	}
	c.leaving = true
	c.queue.put(appendGoAway(c.scratch[:0], c.last, code))
	c.flushAsync()
	c.closeWhenDone()
}

// sayGoodbye tells a client what it has done, and gives it time to read that.
func (c *conn) sayGoodbye(e *connError) {
	c.log.Debug("a connection of HTTP/2 ends", "client", c.remote, "error", e)
	c.mu.Lock()
	c.leaving = true
	for _, s := range c.streams {
		c.close(s, errGone)
	}
	c.queue.put(appendGoAway(c.scratch[:0], c.last, e.code))
	c.flushAsync()
	c.mu.Unlock()
	_ = c.wire.SetReadDeadline(time.Now().Add(linger))
	_, _ = io.CopyN(io.Discard, c.r, receives) // nothing of it counts
}

// fail ends all there is. The caller holds mu.
func (c *conn) fail(err error) {
	if c.err != nil {
		return
	}
	if err == nil || errors.Is(err, io.EOF) || errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, ErrStalled) {
		err = errGone
	}
	c.err = err
	reason := errGone
	if errors.Is(err, ErrStalled) {
		reason = ErrStalled
	}
	for _, s := range c.streams {
		c.close(s, reason)
	}
	c.runClosing()
	for _, s := range c.writers {
		s.signal()
	}
	for _, s := range c.blocked {
		s.signal()
	}
	c.waiting = nil
	c.server.extra.give(c.queue.extra)
	c.queue.free()
	c.queue = backlog{}
	c.room.Broadcast()
	_ = c.wire.SetDeadline(longAgo) // who reads or writes ends
}
