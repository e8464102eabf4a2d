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
	// linger is how long a connection is kept after a GOAWAY, so that its client can read it.
	linger = time.Second
	// unread is what a client may send of a body before somebody begins to read it, in bytes;
	// receives since then, and ofAll of all bodies: those that nobody reads yet leave room for
	// those that are read.
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
	due      time.Duration // when tick is called, since born
	pinged   time.Duration // when a sign of life was asked for, since born; 0 when it came
	in       window        // what the client may send
	out      int64         // what it takes, over all streams
	outFirst int64         // what it takes of a new stream
	sending
}

// sending is what is written, see send.go. It is guarded by conn.mu.
type sending struct {
	pending   backlog   // frames
	spare     []*[]byte // of the backlog before
	scratch   [32]byte  // for small frames
	resetting int       // streams, by pending
	held      bool      // the pen
	yielding  bool      // somebody will take it who lets others go first
	line      []*stream
	blocked   []*stream // that wait for the window of the connection
	room      sync.Cond // of the reader, which waits until less is pending
	flying    int       // bytes of the allowance that are being written
	until     time.Time // the wire's deadline; zero when there is none
	encoder   *hpack.Encoder
	encoded   bytes.Buffer
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
	c.due = c.now() + min(c.config.IdleTimeout, c.config.PingAfter)
	c.timer = time.AfterFunc(c.due-c.now(), c.tick)
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
	c.pending.put(appendSettings(c.scratch[:0],
		http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: uint32(c.config.MaxStreams)},
		http2.Setting{ID: http2.SettingMaxHeaderListSize, Val: uint32(c.block.limit)},
		http2.Setting{ID: http2.SettingInitialWindowSize, Val: unread},
	))
	c.pending.put(appendWindowUpdate(c.scratch[:0], 0, ofAll-c.in.left))
	c.in = window{left: ofAll, step: receives / 4}
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
	c.flushSoon()
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
			c.mu.Lock()
			c.closeWhenDone() // if it was told to leave meanwhile
			c.mu.Unlock()
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
		if h.stream != 0 {
			return broken(http2.ErrCodeProtocol, "GOAWAY of a stream")
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
	c.pending.put(appendPing(c.scratch[:0], http2.FlagPingAck, p))
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

// tick closes a connection without requests, and asks for a sign of life of a silent client.
func (c *conn) tick() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	now := c.now()
	rested := c.rest()
	silent := now - time.Duration(c.heard.Load())
	if c.pinged > 0 && silent < now-c.pinged {
		c.pinged = 0
	}
	next := c.config.PingAfter - silent
	switch {
	case c.pinged > 0:
		if next = c.config.PingTimeout - (now - c.pinged); next <= 0 {
			c.fail(errSilent)
			return
		}
	case next <= 0:
		c.pinged, next = now, c.config.PingTimeout
		c.pending.put(appendPing(c.scratch[:0], 0, make([]byte, 8)))
		c.flushSoon()
	}
	if len(c.streams) == 0 && c.running == 0 && !c.held {
		left := c.config.IdleTimeout - (now - c.idle)
		switch {
		case left <= 0 && c.leaving:
			c.fail(errGone)
			return
		case left <= 0:
			c.leave(http2.ErrCodeNo)
			left = linger
		}
		next = min(next, left)
	}
	if rested > 0 {
		next = min(next, rested)
	}
	c.due = 0
	c.wakeAfter(max(next, time.Millisecond))
}

// wakeAfter has tick be called after a while, if it is not before. The caller holds mu.
func (c *conn) wakeAfter(d time.Duration) {
	if at := c.now() + d; c.due == 0 || at < c.due {
		c.due = at
		c.timer.Reset(d)
	}
}

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
	c.pending.put(appendGoAway(c.scratch[:0], c.last, code))
	c.flushSoon()
	c.closeWhenDone()
}

// closeWhenDone gives the client of a connection without streams, which was told to leave and has
// taken all that was to be written, time to do it. The caller holds mu.
func (c *conn) closeWhenDone() {
	if c.leaving && len(c.streams) == 0 && !c.held && c.pending.size == 0 {
		_ = c.wire.SetReadDeadline(time.Now().Add(linger))
	}
}

// sayGoodbye tells a client what it has done, and gives it time to read that.
func (c *conn) sayGoodbye(e *connError) {
	c.log.Debug("a connection of HTTP/2 ends", "client", c.remote, "error", e)
	c.mu.Lock()
	c.leaving = true
	for _, s := range c.streams {
		c.close(s, errGone)
	}
	c.pending.put(appendGoAway(c.scratch[:0], c.last, e.code))
	c.flushSoon()
	c.mu.Unlock()
	_ = c.wire.SetReadDeadline(time.Now().Add(linger))
	_, _ = io.CopyN(io.Discard, c.r, receives) // nothing of it counts
}

// fail ends all there is. The caller holds mu.
func (c *conn) fail(err error) {
	if c.err != nil {
		return
	}
	if err == nil || errors.Is(err, io.EOF) || errors.Is(err, os.ErrDeadlineExceeded) {
		err = errGone
	}
	c.err = err
	for _, s := range c.streams {
		c.close(s, errGone)
	}
	for _, s := range c.line {
		s.signal()
	}
	for _, s := range c.blocked {
		s.signal()
	}
	c.waiting = nil
	c.server.extra.give(c.pending.extra)
	c.pending.free()
	c.pending = backlog{}
	c.room.Broadcast()
	_ = c.wire.SetDeadline(longAgo) // who reads or writes ends
}
