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
	// prefaceTimeout is the time for the client's preface and first SETTINGS.
	prefaceTimeout = 10 * time.Second
	// initialBodyWindow is the window of a body, in bytes, until its handler starts to read it.
	// bodyWindow is the window afterwards. minConnWindow is the smallest window of the connection;
	// see connWindow.
	initialBodyWindow = initialWindow
	bodyWindow        = 1 << 20
	minConnWindow     = 16 << 20
	// headerTable is the size of the HPACK table for each direction, in bytes.
	headerTable = 4096
	// The advertised header limit allows fieldOverhead bytes for each of overheadFields fields.
	fieldOverhead  = 32
	overheadFields = 10
	// maxQueuedPerStream times MaxStreams requests may wait until handlers of closed streams
	// return.
	maxQueuedPerStream = 4
)

// pastDeadline is a deadline that has passed.
var pastDeadline = time.Unix(1, 0)

// conn is an HTTP/2 connection.
type conn struct {
	server   *Server
	config   *Config
	wire     Wire
	handler  http.Handler
	ctx      context.Context // parent of all request contexts
	cancel   context.CancelFunc
	tls      *tls.ConnectionState
	remote   string
	log      *slog.Logger
	started  time.Time
	timer    *time.Timer
	lastRead atomic.Int64 // time of the last read, since started

	// Used by the reader only.
	r               *bufio.Reader
	block           headerBlock
	names           map[string]string // cache of canonical field names
	resets, control int               // frames received since the last call of Wire.FramesReceived

	mu                sync.Mutex
	err               error // set when the connection has failed
	streams           map[uint32]*stream
	last              uint32        // the newest stream of the client
	closed            closedStreams // recently closed streams
	running           int           // running handlers
	waiting           []*stream     // open streams that wait until a handler of a closed stream returns
	idle              time.Duration // time since started at which the last stream closed
	leaving           bool          // GOAWAY was sent
	recvWindow        window        // for the client's DATA
	sendWindow        int64         // for DATA to the client, over all streams
	initialSendWindow int64         // for DATA to the client on a new stream
	encoder           *hpack.Encoder
	encoded           bytes.Buffer
	schedule
	delivery
}

// newConn returns a connection that has not exchanged frames yet.
func newConn(ctx context.Context, s *Server, w Wire, handler http.Handler) *conn {
	c := &conn{
		server:            s,
		config:            &s.config,
		wire:              w,
		handler:           handler,
		log:               s.config.Logger,
		started:           time.Now(),
		remote:            w.RemoteAddr().String(),
		streams:           map[uint32]*stream{},
		names:             map[string]string{},
		recvWindow:        window{available: initialWindow},
		sendWindow:        initialWindow,
		initialSendWindow: initialWindow,
	}
	c.r = bufio.NewReader(wireReader{c})
	state := w.ConnectionState()
	c.tls = &state
	c.ctx, c.cancel = context.WithCancel(ctx)
	c.queueSpace.L = &c.mu
	c.encoder = hpack.NewEncoder(&c.encoded)
	c.encoder.SetMaxDynamicTableSizeLimit(headerTable)
	c.block.init(s.config.MaxHeaderBytes+fieldOverhead*overheadFields, c.wire)
	return c
}

// now returns the time since the connection started.
func (c *conn) now() time.Duration { return time.Since(c.started) }

// serve reads frames until the connection ends.
func (c *conn) serve() {
	c.mu.Lock()
	c.idle = c.now()
	c.timer = time.AfterFunc(never, c.tick)
	c.wakeAfter(min(c.config.IdleTimeout, c.config.PingAfter))
	c.sendSettings()
	c.mu.Unlock()
	if !c.server.add(c) { // after SETTINGS, which must come first
		c.goAway()
	}
	defer c.end() // even if a handler of frames panics
	err := c.read()
	var violation *connError
	if errors.As(err, &violation) {
		c.closeWithError(violation)
	}
}

// end releases the resources of the connection.
func (c *conn) end() {
	c.mu.Lock()
	c.fail(errGone)
	c.mu.Unlock()
	c.timer.Stop()
	c.cancel()
	_ = c.wire.Close() // the client may have closed it
}

// sendSettings queues the SETTINGS of the server. The caller holds mu.
func (c *conn) sendSettings() {
	c.queue.put(appendSettings(c.scratch[:0],
		http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: uint32(c.config.MaxStreams)},
		http2.Setting{ID: http2.SettingMaxHeaderListSize, Val: uint32(c.block.limit)},
		http2.Setting{ID: http2.SettingInitialWindowSize, Val: initialBodyWindow},
	))
	c.queue.put(appendWindowUpdate(c.scratch[:0], 0, c.connWindow()-c.recvWindow.available))
	c.recvWindow = window{available: c.connWindow(), step: bodyWindow / 4}
}

// connWindow returns the receive window of the connection in bytes. If every stream has a body that
// no handler reads yet, one body that is read still fits.
func (c *conn) connWindow() int64 {
	return min(max(minConnWindow, int64(c.config.MaxStreams)*initialBodyWindow+bodyWindow), largestWindow)
}

// read handles frames until an error.
func (c *conn) read() error {
	if isForbiddenCipher(c.tls) {
		return newConnError(http2.ErrCodeInadequateSecurity, "forbidden TLS cipher suite")
	}
	if err := c.wire.SetReadDeadline(time.Now().Add(prefaceTimeout)); err != nil {
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
		return newConnError(http2.ErrCodeProtocol, "invalid preface")
	}
	hasSettings := false // the first SETTINGS frame has arrived
	for {
		h, err := c.readFrameHeader()
		if err != nil {
			return err
		}
		if !hasSettings {
			if h.kind != http2.FrameSettings || h.has(http2.FlagSettingsAck) {
				return newConnError(http2.ErrCodeProtocol, "first frame is not SETTINGS")
			}
			if err := c.wire.SetReadDeadline(time.Time{}); err != nil {
				return err
			}
			hasSettings = true
		}
		if err := c.handleFrame(h); err != nil {
			var violation *streamError
			if !errors.As(err, &violation) {
				return err
			}
			c.mu.Lock()
			c.reset(violation.stream, violation.code, errProtocol)
			c.mu.Unlock()
		}
	}
}

// handleFrame handles one frame.
func (c *conn) handleFrame(h frameHeader) error {
	if c.block.stream != 0 && (h.kind != http2.FrameContinuation || h.stream != c.block.stream) {
		return newConnError(http2.ErrCodeProtocol, "header block not finished")
	}
	if h.kind == http2.FrameData {
		return c.handleData(h)
	}
	p, large, err := c.payload(h.length)
	if err != nil {
		return err
	}
	err = c.handleControlFrame(h, p)
	if large != nil {
		framePayloads.Put(large)
	} else {
		_, _ = c.r.Discard(h.length)
	}
	return err
}

// handleControlFrame handles a frame other than DATA.
func (c *conn) handleControlFrame(h frameHeader, p []byte) error {
	switch h.kind {
	case http2.FrameHeaders:
		return c.handleHeaders(h, p)
	case http2.FrameContinuation:
		return c.handleContinuation(h, p)
	case http2.FramePriority:
		return checkPriority(h, p)
	case http2.FrameRSTStream:
		return c.handleReset(h, p)
	case http2.FrameSettings:
		return c.handleSettings(h, p)
	case http2.FramePushPromise:
		return newConnError(http2.ErrCodeProtocol, "PUSH_PROMISE from a client")
	case http2.FramePing:
		return c.handlePing(h, p)
	case http2.FrameGoAway:
		switch {
		case h.stream != 0:
			return newConnError(http2.ErrCodeProtocol, "GOAWAY on a stream")
		case len(p) < 8:
			return newConnError(http2.ErrCodeFrameSize, "GOAWAY too short")
		}
		c.goAway()
	case http2.FrameWindowUpdate:
		return c.handleWindowUpdate(h, p)
	}
	return nil // ignores unknown types
}

// checkPriority validates a PRIORITY frame. Priorities are not used.
func checkPriority(h frameHeader, p []byte) error {
	switch {
	case h.stream == 0:
		return newConnError(http2.ErrCodeProtocol, "PRIORITY on stream 0")
	case len(p) != 5:
		return &streamError{h.stream, http2.ErrCodeFrameSize}
	case priorityDependency(p) == h.stream:
		return &streamError{h.stream, http2.ErrCodeProtocol}
	}
	return nil
}

// handlePing answers a PING. A response needs no handling, because every frame counts as liveness.
func (c *conn) handlePing(h frameHeader, p []byte) error {
	switch {
	case h.stream != 0:
		return newConnError(http2.ErrCodeProtocol, "PING on a stream")
	case len(p) != 8:
		return newConnError(http2.ErrCodeFrameSize, "PING of invalid size")
	case h.has(http2.FlagPingAck):
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queue.put(appendPing(c.scratch[:0], http2.FlagPingAck, p))
	return nil
}

// handleReset closes a stream.
func (c *conn) handleReset(h frameHeader, p []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case len(p) != 4:
		return newConnError(http2.ErrCodeFrameSize, "RST_STREAM of invalid size")
	case h.stream == 0 || c.isIdle(h.stream):
		return newConnError(http2.ErrCodeProtocol, "RST_STREAM on an idle stream")
	}
	if s := c.streams[h.stream]; s != nil {
		c.close(s, errReset)
	} else {
		c.closed.markResetByClient(h.stream) // the client sends nothing more on it
	}
	return nil
}

// isIdle reports whether a stream has not been opened and may still be. The caller holds mu.
func (c *conn) isIdle(id uint32) bool { return id%2 == 0 || id > c.last && !c.leaving }

var (
	errSilent = errors.New("the client did not answer a PING")
	errReset  = errors.New("the client has reset the stream")
	errGone   = errors.New("the connection is closed")
)

// goAway tells the client to open no more streams.
func (c *conn) goAway() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.goAwayLocked(http2.ErrCodeNo)
}

// goAwayLocked does what goAway does. The caller holds mu.
func (c *conn) goAwayLocked(code http2.ErrCode) {
	if c.leaving || c.err != nil {
		return
	}
	c.leaving = true
	c.queue.put(appendGoAway(c.scratch[:0], c.last, code))
	c.flushAsync()
	c.closeWhenDone()
}

// closeWithError sends a GOAWAY with the error. It returns after linger, in which the client can read
// the GOAWAY, or when the client closes the connection.
func (c *conn) closeWithError(e *connError) {
	c.log.Debug("HTTP/2 connection error", "client", c.remote, "error", e)
	c.mu.Lock()
	c.leaving = true
	for _, s := range c.streams {
		c.close(s, errGone)
	}
	c.queue.put(appendGoAway(c.scratch[:0], c.last, e.code))
	c.flushAsync()
	c.mu.Unlock()
	_ = c.wire.SetReadDeadline(time.Now().Add(linger))
	_, _ = io.CopyN(io.Discard, c.r, bodyWindow) // discards what the client sends
}

// fail ends the connection and all its streams. The caller holds mu.
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
	c.runCloseFuncs()
	for _, s := range c.writers {
		s.signal()
	}
	for _, s := range c.blocked {
		s.signal()
	}
	c.waiting = nil
	c.server.extra.release(c.queue.extra)
	c.queue.release()
	c.queue = backlog{}
	c.queueSpace.Broadcast()
	_ = c.wire.SetDeadline(pastDeadline) // unblocks the reader and the writer
}
