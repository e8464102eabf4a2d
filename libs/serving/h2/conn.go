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
	// initialBodyWindow is the receive window of a stream, in bytes, until its handler has read as
	// many bytes.
	initialBodyWindow = initialWindow
	// bodyWindow is the largest receive window of a stream, in bytes; see body.growWindow.
	bodyWindow = 1 << 20
	// minConnWindow is the smallest receive window of the connection, in bytes; see connWindow.
	minConnWindow = 16 << 20
	// headerTable is the size of the HPACK table for each direction, in bytes.
	headerTable = 4096
	// The advertised SETTINGS_MAX_HEADER_LIST_SIZE is Config.MaxHeaderBytes plus fieldOverhead
	// bytes for each of overheadFields fields, because HPACK adds that overhead to the size of a
	// field.
	fieldOverhead  = 32
	overheadFields = 10
	// maxQueuedPerStream times Config.MaxStreams is how many requests may wait for a handler slot.
	// Slots are missing when a client resets streams whose handlers have not returned yet.
	maxQueuedPerStream = 4
)

// pastDeadline interrupts all reads and writes of a wire when it is set as the deadline.
var pastDeadline = time.Unix(1, 0)

// conn is an HTTP/2 connection.
type conn struct {
	server     *Server
	config     *Config
	wire       Wire
	handler    http.Handler
	ctx        context.Context // parent of all request contexts
	cancel     context.CancelFunc
	tls        *tls.ConnectionState
	remote     string
	log        *slog.Logger
	startedAt  time.Time
	timer      *time.Timer
	lastReadAt atomic.Int64 // time of the last read, as a time.Duration since startedAt

	// Used by the reader only.
	reader                          *bufio.Reader
	headers                         headerBlock
	canonicalNames                  map[string]string // cache of canonicalName: "content-type" -> "Content-Type"
	receivedResets, receivedControl int               // counts not yet reported by Wire.FramesReceived

	mu                sync.Mutex
	err               error // set when the connection has failed
	streams           map[uint32]*stream
	lastStreamID      uint32 // the newest stream that the client opened
	recentlyClosed    closedStreams
	runningHandlers   int           // at most Config.MaxStreams
	waitingForHandler []*stream     // open streams without a handler slot
	idleSince         time.Duration // when the last stream closed, since startedAt
	goAwaySent        bool          // GOAWAY was sent or queued; new streams are ignored
	recvWindow        window        // for DATA from the client, over all streams
	sendWindow        int64         // for DATA to the client, over all streams
	initialSendWindow int64         // the sendWindow of a new stream
	headerEncoder     *hpack.Encoder
	encodedHeaders    bytes.Buffer
	schedule
	delivery
}

// newConn returns a connection that has not exchanged frames yet.
func newConn(ctx context.Context, server *Server, wire Wire, handler http.Handler) *conn {
	c := &conn{
		server:            server,
		config:            &server.config,
		wire:              wire,
		handler:           handler,
		log:               server.config.Logger,
		startedAt:         time.Now(),
		remote:            wire.RemoteAddr().String(),
		streams:           map[uint32]*stream{},
		canonicalNames:    map[string]string{},
		recvWindow:        window{available: initialWindow},
		sendWindow:        initialWindow,
		initialSendWindow: initialWindow,
	}
	c.reader = bufio.NewReader(wireReader{c})
	state := wire.ConnectionState()
	c.tls = &state
	c.ctx, c.cancel = context.WithCancel(ctx)
	c.queueSpace.L = &c.mu
	c.headerEncoder = hpack.NewEncoder(&c.encodedHeaders)
	c.headerEncoder.SetMaxDynamicTableSizeLimit(headerTable)
	c.headers.init(server.config.MaxHeaderBytes+fieldOverhead*overheadFields, c.wire)
	return c
}

// now returns the time since startedAt. It is never negative, and is not affected by clock changes.
func (c *conn) now() time.Duration { return time.Since(c.startedAt) }

// serve serves the connection until it is closed. It calls readFrames, and closes the wire.
func (c *conn) serve() {
	c.mu.Lock()
	c.idleSince = c.now()
	c.timer = time.AfterFunc(never, c.checkTimeouts)
	c.scheduleCheck(min(c.config.IdleTimeout, c.config.PingAfter))
	c.sendSettings()
	c.mu.Unlock()
	if !c.server.add(c) { // after sendSettings, because SETTINGS must be the first frame
		c.goAway()
	}
	defer c.releaseResources() // even if a handler of frames panics
	err := c.readFrames()
	var violation *connError
	if errors.As(err, &violation) {
		c.closeWithError(violation)
	}
}

// releaseResources terminates the connection, cancels its requests and closes the wire.
func (c *conn) releaseResources() {
	c.mu.Lock()
	c.terminate(errConnClosed)
	c.mu.Unlock()
	c.timer.Stop()
	c.cancel()
	_ = c.wire.Close() // the client may have closed it
}

// sendSettings queues the SETTINGS of the server, and a WINDOW_UPDATE that enlarges the receive
// window of the connection. The caller holds mu.
func (c *conn) sendSettings() {
	c.queue.append(appendSettings(c.scratch[:0],
		http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: uint32(c.config.MaxStreams)},
		http2.Setting{ID: http2.SettingMaxHeaderListSize, Val: uint32(c.headers.limit)},
		http2.Setting{ID: http2.SettingInitialWindowSize, Val: initialBodyWindow},
	))
	c.queue.append(appendWindowUpdate(c.scratch[:0], 0, c.connWindow()-c.recvWindow.available))
	c.recvWindow = window{available: c.connWindow(), step: bodyWindow / 4}
}

// connWindow returns the receive window of the connection in bytes. It is large enough for the
// initial window of every stream plus one body that is being read, so unread bodies cannot block
// that one.
func (c *conn) connWindow() int64 {
	return min(max(minConnWindow, int64(c.config.MaxStreams)*initialBodyWindow+bodyWindow), largestWindow)
}

// readFrames reads the preface, and then reads and handles frames until an error. A *streamError
// resets its stream and reading continues.
func (c *conn) readFrames() error {
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
	if _, err := io.ReadFull(c.reader, preface); err != nil {
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
			c.resetStream(violation.streamID, violation.code, errProtocol)
			c.mu.Unlock()
		}
	}
}

// handleFrame reads the payload of a frame and handles it.
func (c *conn) handleFrame(h frameHeader) error {
	if c.headers.streamID != 0 && (h.kind != http2.FrameContinuation || h.streamID != c.headers.streamID) {
		return newConnError(http2.ErrCodeProtocol, "header block not finished")
	}
	if h.kind == http2.FrameData {
		return c.handleData(h)
	}
	p, large, err := c.readPayload(h.length)
	if err != nil {
		return err
	}
	err = c.handleControlFrame(h, p)
	if large != nil {
		framePayloads.Put(large)
	} else {
		_, _ = c.reader.Discard(h.length)
	}
	return err
}

// handleControlFrame handles a frame other than DATA.
func (c *conn) handleControlFrame(h frameHeader, data []byte) error {
	switch h.kind {
	case http2.FrameHeaders:
		return c.handleHeaders(h, data)
	case http2.FrameContinuation:
		return c.handleContinuation(h, data)
	case http2.FramePriority:
		return checkPriority(h, data)
	case http2.FrameRSTStream:
		return c.handleReset(h, data)
	case http2.FrameSettings:
		return c.handleSettings(h, data)
	case http2.FramePushPromise:
		return newConnError(http2.ErrCodeProtocol, "PUSH_PROMISE from a client")
	case http2.FramePing:
		return c.handlePing(h, data)
	case http2.FrameGoAway:
		switch {
		case h.streamID != 0:
			return newConnError(http2.ErrCodeProtocol, "GOAWAY on a stream")
		case len(data) < 8:
			return newConnError(http2.ErrCodeFrameSize, "GOAWAY too short")
		}
		c.goAway()
	case http2.FrameWindowUpdate:
		return c.handleWindowUpdate(h, data)
	}
	return nil // ignores unknown types
}

// checkPriority validates a PRIORITY frame. Priorities are not used.
func checkPriority(h frameHeader, data []byte) error {
	switch {
	case h.streamID == 0:
		return newConnError(http2.ErrCodeProtocol, "PRIORITY on stream 0")
	case len(data) != 5:
		return &streamError{h.streamID, http2.ErrCodeFrameSize}
	case priorityDependency(data) == h.streamID:
		return &streamError{h.streamID, http2.ErrCodeProtocol}
	}
	return nil
}

// handlePing acknowledges a PING. An acknowledgment from the client needs no handling, because
// every frame proves that the client is alive.
func (c *conn) handlePing(h frameHeader, data []byte) error {
	switch {
	case h.streamID != 0:
		return newConnError(http2.ErrCodeProtocol, "PING on a stream")
	case len(data) != 8:
		return newConnError(http2.ErrCodeFrameSize, "PING of invalid size")
	case h.has(http2.FlagPingAck):
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queue.append(appendPing(c.scratch[:0], http2.FlagPingAck, data))
	return nil
}

// handleReset closes the stream that the client has reset.
func (c *conn) handleReset(h frameHeader, p []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case len(p) != 4:
		return newConnError(http2.ErrCodeFrameSize, "RST_STREAM of invalid size")
	case h.streamID == 0 || c.isIdle(h.streamID):
		return newConnError(http2.ErrCodeProtocol, "RST_STREAM on an idle stream")
	}
	if s := c.streams[h.streamID]; s != nil {
		c.closeStream(s, errResetByClient)
	} else {
		c.recentlyClosed.markResetByClient(h.streamID) // the client sends nothing more on it
	}
	return nil
}

// isIdle reports whether the client has not opened the stream yet. After a GOAWAY, newer streams do
// not count as idle, because the client may open them before it reads the GOAWAY. The caller holds
// mu.
func (c *conn) isIdle(id uint32) bool { return id%2 == 0 || id > c.lastStreamID && !c.goAwaySent }

var (
	errPingTimeout   = errors.New("the client did not answer a PING")
	errResetByClient = errors.New("the client has reset the stream")
	errConnClosed    = errors.New("the connection is closed")
)

// goAway sends a GOAWAY: the client must not open more streams, and open streams are completed.
func (c *conn) goAway() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.goAwayLocked(http2.ErrCodeNo)
}

// goAwayLocked sends a GOAWAY with the code, unless one was sent. The caller holds mu.
func (c *conn) goAwayLocked(code http2.ErrCode) {
	if c.goAwaySent || c.err != nil {
		return
	}
	c.goAwaySent = true
	c.queue.append(appendGoAway(c.scratch[:0], c.lastStreamID, code))
	c.flushAsync()
	c.scheduleClose()
}

// closeWithError closes all streams and sends a GOAWAY with the code of e. It returns when the
// client closes the connection, and at the latest after linger, in which the client can read the
// GOAWAY.
func (c *conn) closeWithError(e *connError) {
	c.log.Debug("HTTP/2 connection error", "client", c.remote, "error", e)
	c.mu.Lock()
	c.goAwaySent = true
	for _, s := range c.streams {
		c.closeStream(s, errConnClosed)
	}
	c.queue.append(appendGoAway(c.scratch[:0], c.lastStreamID, e.code))
	c.flushAsync()
	c.mu.Unlock()
	_ = c.wire.SetReadDeadline(time.Now().Add(linger))
	_, _ = io.CopyN(io.Discard, c.reader, bodyWindow) // discards what the client sends
}

// terminate closes all streams, discards the queue, and wakes all goroutines that wait for the
// connection. It sends nothing, and does not close the wire. Later calls do nothing. The caller
// holds mu.
func (c *conn) terminate(err error) {
	if c.err != nil {
		return
	}
	if err == nil || errors.Is(err, io.EOF) || errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, ErrStalled) {
		err = errConnClosed
	}
	c.err = err
	reason := errConnClosed
	if errors.Is(err, ErrStalled) {
		reason = ErrStalled
	}
	for _, s := range c.streams {
		c.closeStream(s, reason)
	}
	c.runCloseFuncs()
	for _, s := range c.waitingForToken {
		s.signal()
	}
	for _, s := range c.waitingForConnWindow {
		s.signal()
	}
	c.waitingForHandler = nil
	c.server.extra.release(c.queue.extra)
	c.queue.recycle()
	c.queue = backlog{}
	c.queueSpace.Broadcast()
	_ = c.wire.SetDeadline(pastDeadline) // unblocks the reader and the writer
}
