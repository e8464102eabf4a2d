package h2

import (
	"errors"
	"io"
	"net/http"
	"strings"

	"golang.org/x/net/http/httpguts"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

const (
	// largeHeaders is the size in bytes from which decoding a header block needs a permit, because
	// it takes milliseconds. The size is that of the encoded block, in which a byte may stand for a
	// whole field.
	largeHeaders = 8 << 10
	// largeDecoded is the decoded size in bytes from which a permit is needed.
	largeDecoded = 64 << 10
	// maxFields is the largest number of fields. Each takes about a hundred bytes.
	maxFields = 10_000
	// maxCompressedFactor limits the encoded size of a header block, as a multiple of the decoded
	// limit.
	maxCompressedFactor = 2
	// maxCachedNames is the number of canonical field names that a connection caches.
	maxCachedNames = 64
)

// errProtocol is the error of a stream whose client violates the protocol.
var errProtocol = errors.New("protocol violation by the client")

// headerBlock is a header block while its frames arrive. Only the reader uses it.
type headerBlock struct {
	decoder   *hpack.Decoder
	limit     int    // on the decoded size
	stream    uint32 // the stream; 0 if no CONTINUATION is expected
	endStream bool   // the frame has END_STREAM
	bytes     int    // encoded bytes so far

	wire      Wire
	hasPermit bool // holds a permit for large header blocks

	partial   []byte              // the start of an incomplete field
	fields    []hpack.HeaderField // pseudo-fields first
	pseudo    int                 // number of pseudo-fields
	remaining int                 // decoded bytes until limit is reached
	truncated bool                // fields beyond limit were dropped
	malformed bool                // the request violates RFC 9113
}

// init prepares a header block of at most limit decoded bytes.
func (b *headerBlock) init(limit int, w Wire) {
	b.limit = limit
	b.wire = w
	b.decoder = hpack.NewDecoder(headerTable, b.addField)
	b.decoder.SetMaxStringLength(limit)
}

// start starts a header block.
func (b *headerBlock) start(h frameHeader) {
	*b = headerBlock{
		decoder: b.decoder, wire: b.wire, limit: b.limit, fields: b.fields[:0],
		stream: h.stream, endStream: h.has(http2.FlagHeadersEndStream), remaining: b.limit,
	}
	b.decoder.SetEmitEnabled(true)
}

// addField appends a decoded field.
func (b *headerBlock) addField(f hpack.HeaderField) {
	b.remaining -= int(f.Size())
	if b.remaining < 0 || len(b.fields) == maxFields {
		b.truncated = true
		b.decoder.SetEmitEnabled(false)
		return
	}
	if b.limit-b.remaining >= largeDecoded {
		b.acquirePermit()
	}
	if f.IsPseudo() {
		b.malformed = b.malformed || b.pseudo < len(b.fields) || !b.isNew(f.Name)
		b.pseudo++
	} else if !validField(f) {
		b.malformed = true
	}
	b.fields = append(b.fields, f)
}

// isNew reports whether name is a request pseudo-field that was not seen yet.
func (b *headerBlock) isNew(name string) bool {
	switch name {
	case ":method", ":scheme", ":authority", ":path":
	default:
		return false
	}
	for _, f := range b.fields {
		if f.Name == name {
			return false
		}
	}
	return true
}

// validField reports whether a request may have the field (RFC 9113, "HTTP Fields").
func validField(f hpack.HeaderField) bool {
	switch f.Name {
	case "connection", "proxy-connection", "keep-alive", "transfer-encoding", "upgrade":
		return false
	case "te":
		return f.Value == "trailers"
	}
	return isLower(f.Name) && httpguts.ValidHeaderFieldName(f.Name) && httpguts.ValidHeaderFieldValue(f.Value)
}

// isLower reports whether a name has no upper-case ASCII letter.
func isLower(name string) bool {
	for i := range len(name) {
		if 'A' <= name[i] && name[i] <= 'Z' {
			return false
		}
	}
	return true
}

// pseudoValue returns the value of a pseudo-field, or "".
func (b *headerBlock) pseudoValue(name string) string {
	for _, f := range b.fields[:b.pseudo] {
		if f.Name == name {
			return f.Value
		}
	}
	return ""
}

// handleHeaders handles a HEADERS frame.
func (c *conn) handleHeaders(h frameHeader, p []byte) error {
	if h.stream%2 == 0 {
		return newConnError(http2.ErrCodeProtocol, "HEADERS on an invalid stream")
	}
	p, ok := unpad(h, p)
	if !ok {
		return newConnError(http2.ErrCodeProtocol, "padding exceeds the frame")
	}
	c.block.start(h)
	if h.has(http2.FlagHeadersPriority) {
		if len(p) < 5 {
			return newConnError(http2.ErrCodeFrameSize, "priority too short")
		}
		c.block.malformed = priorityDependency(p) == h.stream
		p = p[5:]
	}
	return c.handleFragment(h, p)
}

// handleContinuation handles a CONTINUATION frame.
func (c *conn) handleContinuation(h frameHeader, p []byte) error {
	if c.block.stream == 0 {
		return newConnError(http2.ErrCodeProtocol, "unexpected CONTINUATION")
	}
	return c.handleFragment(h, p)
}

// largeFieldCount is the number of fields in a frame from which a permit is needed. Each takes
// about a microsecond.
const largeFieldCount = 2000

// hasManyFields reports whether a fragment may have largeFieldCount fields. One byte with the high
// bit set stands for an indexed field.
func hasManyFields(p []byte) bool {
	if len(p) < largeFieldCount {
		return false
	}
	n := 0
	for _, b := range p {
		n += int(b >> 7)
	}
	return n >= largeFieldCount
}

// acquirePermit waits for the permit if it is not held.
func (b *headerBlock) acquirePermit() {
	if !b.hasPermit {
		b.hasPermit = true
		b.wire.AcquireHeaderPermit()
	}
}

// releasePermit releases the permit if it is held.
func (b *headerBlock) releasePermit() {
	if b.hasPermit {
		b.hasPermit = false
		b.wire.ReleaseHeaderPermit()
	}
}

// handleFragment decodes a fragment of a header block.
func (c *conn) handleFragment(h frameHeader, p []byte) error {
	b := &c.block
	b.bytes += len(p)
	if b.bytes > maxCompressedFactor*b.limit {
		return newConnError(http2.ErrCodeEnhanceYourCalm, "header block too large")
	}
	if b.bytes >= largeHeaders || hasManyFields(p) {
		b.acquirePermit()
	}
	defer b.releasePermit()
	if err := b.decode(p); err != nil {
		return newConnError(http2.ErrCodeCompression, err.Error())
	}
	if !h.has(http2.FlagHeadersEndHeaders) {
		if n := b.bytes + b.limit - max(0, b.remaining); n >= largeHeaders && !b.wire.ReserveHeader(n) {
			return newConnError(http2.ErrCodeEnhanceYourCalm, "too many unfinished header blocks")
		}
		return nil
	}
	b.wire.ReserveHeader(0)
	defer b.reset()
	if err := b.close(); err != nil {
		return newConnError(http2.ErrCodeCompression, err.Error())
	}
	return c.handleHeaderBlock()
}

// handleHeaderBlock handles a complete header block: it starts a request, or ends one with trailers.
func (c *conn) handleHeaderBlock() error {
	b := &c.block
	id := b.stream
	b.stream = 0
	s, err := c.openStream(id)
	switch {
	case errors.Is(err, errIgnored):
		c.control++
		return nil
	case err != nil:
		return err
	case s != nil:
		return c.handleTrailers(s)
	}
	return nil
}

// openStream starts the request of a complete header block, or returns the open stream whose
// trailers it holds. It excludes goAwayLocked: every stream up to the last stream of a GOAWAY has
// started.
func (c *conn) openStream(id uint32) (open *stream, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	open = c.streams[id]
	if err := c.checkNewStream(open, id); err != nil || open != nil {
		return open, err
	}
	if c.err != nil {
		return nil, c.err
	}
	if c.block.malformed {
		return nil, &streamError{id, http2.ErrCodeProtocol}
	}
	s := c.newStream(id)
	if s == nil {
		return nil, &streamError{id, http2.ErrCodeProtocol}
	}
	return nil, c.open(s)
}

// errIgnored reports a frame that the client sent before it knew that the stream is closed.
var errIgnored = errors.New("frame on a closed stream")

// checkNewStream returns an error if the state of the stream or the connection does not allow a
// header block. s is the open stream with this id, or nil. The caller holds mu.
func (c *conn) checkNewStream(s *stream, id uint32) error {
	switch {
	case s != nil && s.requestEnded:
		return &streamError{id, http2.ErrCodeStreamClosed}
	case s != nil:
		return nil
	case id <= c.last:
		closed, byUs := c.closed.find(id)
		switch {
		case byUs:
			return errIgnored
		case closed:
			return newConnError(http2.ErrCodeStreamClosed, "HEADERS on a closed stream")
		case c.block.pseudo == 0 && c.block.endStream: // trailers of a stream that was reset long ago
			return errIgnored
		}
		return newConnError(http2.ErrCodeProtocol, "stream id is not increasing")
	case c.leaving:
		return errIgnored
	}
	c.last = id
	if len(c.streams) >= c.config.MaxStreams {
		return &streamError{id, http2.ErrCodeRefusedStream}
	}
	return nil
}

// handleTrailers stores the declared trailers of a request, and ends its body.
func (c *conn) handleTrailers(s *stream) error {
	b := &c.block
	if !b.endStream || b.malformed || b.pseudo > 0 {
		return &streamError{s.id, http2.ErrCodeProtocol}
	}
	for _, f := range b.fields {
		name := c.canonicalName(f.Name)
		if _, declared := s.request.Trailer[name]; declared && httpguts.ValidTrailerHeader(name) {
			if s.trailer == nil {
				s.trailer = http.Header{}
			}
			s.trailer[name] = append(s.trailer[name], f.Value)
		}
	}
	return c.endRequest(s)
}

// endRequest is called when the request has arrived completely.
func (c *conn) endRequest(s *stream) error {
	if s.declared >= 0 && s.received != s.declared {
		return &streamError{s.id, http2.ErrCodeProtocol}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s.requestEnded = true // before the handler reads the end of the body and returns
	s.body.finish(io.EOF)
	if s.responseEnded {
		c.close(s, nil)
	}
	return nil
}

// canonicalName is http.CanonicalHeaderKey with a cache.
func (c *conn) canonicalName(name string) string {
	canonical, ok := c.names[name]
	if !ok {
		canonical = http.CanonicalHeaderKey(name)
		if len(c.names) < maxCachedNames && len(name) < 2*maxCachedNames {
			c.names[strings.Clone(name)] = canonical
		}
	}
	return canonical
}
