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
	// largeHeaders is the encoded size in bytes from which decoding a header block needs a permit,
	// because it takes milliseconds: one encoded byte may stand for a whole field.
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

// headerBlock decodes the header block whose HEADERS and CONTINUATION frames arrive. A connection
// reuses it for all its header blocks. Only the reader of the connection uses it.
type headerBlock struct {
	decoder      *hpack.Decoder
	limit        int    // largest decoded size in bytes
	streamID     uint32 // the stream; 0 if no CONTINUATION is expected
	endStream    bool   // the HEADERS frame has END_STREAM
	encodedBytes int    // encoded bytes that have arrived

	wire      Wire
	hasPermit bool // holds a permit for large header blocks

	partial        []byte              // the start of an incomplete field
	fields         []hpack.HeaderField // pseudo-fields first
	pseudoCount    int                 // number of pseudo-fields
	remainingBytes int                 // limit minus the decoded bytes; negative if truncated
	truncated      bool                // fields beyond limit were dropped
	malformed      bool                // the request violates RFC 9113
}

// init prepares a header block of at most limit decoded bytes.
func (b *headerBlock) init(limit int, w Wire) {
	b.limit = limit
	b.wire = w
	b.decoder = hpack.NewDecoder(headerTable, b.addField)
	b.decoder.SetMaxStringLength(limit)
}

// begin prepares for the header block that starts with the HEADERS frame h.
func (b *headerBlock) begin(h frameHeader) {
	*b = headerBlock{
		decoder: b.decoder, wire: b.wire, limit: b.limit, fields: b.fields[:0],
		streamID: h.streamID, endStream: h.has(http2.FlagHeadersEndStream), remainingBytes: b.limit,
	}
	b.decoder.SetEmitEnabled(true)
}

// addField checks and appends a decoded field. It is the emit function of the decoder.
func (b *headerBlock) addField(headerField hpack.HeaderField) {
	b.remainingBytes -= int(headerField.Size())
	if b.remainingBytes < 0 || len(b.fields) == maxFields {
		b.truncated = true
		b.decoder.SetEmitEnabled(false)
		return
	}
	if b.limit-b.remainingBytes >= largeDecoded {
		b.acquirePermit()
	}
	if headerField.IsPseudo() {
		b.malformed = b.malformed || b.pseudoCount < len(b.fields) || !b.isNewPseudoField(headerField.Name)
		b.pseudoCount++
	} else if !validField(headerField) {
		b.malformed = true
	}
	b.fields = append(b.fields, headerField)
}

// isNewPseudoField reports whether name is a pseudo-field of requests and does not repeat.
func (b *headerBlock) isNewPseudoField(name string) bool {
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
func validField(headerField hpack.HeaderField) bool {
	switch headerField.Name {
	case "connection", "proxy-connection", "keep-alive", "transfer-encoding", "upgrade":
		return false
	case "te":
		return headerField.Value == "trailers"
	}
	return isLower(headerField.Name) && httpguts.ValidHeaderFieldName(headerField.Name) && httpguts.ValidHeaderFieldValue(headerField.Value)
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
	for _, f := range b.fields[:b.pseudoCount] {
		if f.Name == name {
			return f.Value
		}
	}
	return ""
}

// handleHeaders handles a HEADERS frame.
func (c *conn) handleHeaders(h frameHeader, data []byte) error {
	if h.streamID%2 == 0 {
		return newConnError(http2.ErrCodeProtocol, "HEADERS on an invalid stream")
	}
	data, ok := unpad(h, data)
	if !ok {
		return newConnError(http2.ErrCodeProtocol, "padding exceeds the frame")
	}
	c.headers.begin(h)
	if h.has(http2.FlagHeadersPriority) {
		if len(data) < 5 {
			return newConnError(http2.ErrCodeFrameSize, "priority too short")
		}
		c.headers.malformed = priorityDependency(data) == h.streamID
		data = data[5:]
	}
	return c.handleFragment(h, data)
}

// handleContinuation handles a CONTINUATION frame.
func (c *conn) handleContinuation(h frameHeader, p []byte) error {
	if c.headers.streamID == 0 {
		return newConnError(http2.ErrCodeProtocol, "unexpected CONTINUATION")
	}
	return c.handleFragment(h, p)
}

// largeFieldCount is the number of fields in a frame from which a permit is needed. Each takes
// about a microsecond.
const largeFieldCount = 2000

// hasManyFields reports whether a fragment may have largeFieldCount fields. One byte with the high
// bit set stands for an indexed field.
func hasManyFields(data []byte) bool {
	if len(data) < largeFieldCount {
		return false
	}
	n := 0
	for _, b := range data {
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

// handleFragment decodes a fragment of a header block: the payload of a HEADERS or CONTINUATION
// frame.
func (c *conn) handleFragment(h frameHeader, data []byte) error {
	b := &c.headers
	b.encodedBytes += len(data)
	if b.encodedBytes > maxCompressedFactor*b.limit {
		return newConnError(http2.ErrCodeEnhanceYourCalm, "header block too large")
	}
	if b.encodedBytes >= largeHeaders || hasManyFields(data) {
		b.acquirePermit()
	}
	defer b.releasePermit()
	if err := b.decode(data); err != nil {
		return newConnError(http2.ErrCodeCompression, err.Error())
	}
	if !h.has(http2.FlagHeadersEndHeaders) {
		if n := b.encodedBytes + b.limit - max(0, b.remainingBytes); n >= largeHeaders && !b.wire.ReserveHeader(n) {
			return newConnError(http2.ErrCodeEnhanceYourCalm, "too many unfinished header blocks")
		}
		return nil
	}
	b.wire.ReserveHeader(0)
	defer b.reset()
	if err := b.finish(); err != nil {
		return newConnError(http2.ErrCodeCompression, err.Error())
	}
	return c.handleHeaderBlock()
}

// handleHeaderBlock handles a complete header block: it starts a request, or ends one with
// trailers.
func (c *conn) handleHeaderBlock() error {
	b := &c.headers
	id := b.streamID
	b.streamID = 0
	s, err := c.startOrFindStream(id)
	switch {
	case errors.Is(err, errStaleFrame):
		c.receivedControl++
		return nil
	case err != nil:
		return err
	case s != nil:
		return c.handleTrailers(s)
	}
	return nil
}

// startOrFindStream starts the request of a complete header block. If the block holds the trailers
// of an open stream, it returns that stream instead. conn.mu is held throughout, so that a GOAWAY
// names only streams that have started.
func (c *conn) startOrFindStream(id uint32) (open *stream, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	open = c.streams[id]
	if err := c.checkNewStream(open, id); err != nil || open != nil {
		return open, err
	}
	if c.err != nil {
		return nil, c.err
	}
	if c.headers.malformed {
		return nil, &streamError{id, http2.ErrCodeProtocol}
	}
	s := c.newStream(id)
	if s == nil {
		return nil, &streamError{id, http2.ErrCodeProtocol}
	}
	return nil, c.startStream(s)
}

// errStaleFrame reports a frame that the client sent before it knew that the stream is closed.
var errStaleFrame = errors.New("frame on a closed stream")

// checkNewStream returns an error if the state of the stream or the connection does not allow a
// header block. s is the open stream with this id, or nil. The caller holds mu.
func (c *conn) checkNewStream(s *stream, id uint32) error {
	switch {
	case s != nil && s.requestEnded:
		return &streamError{id, http2.ErrCodeStreamClosed}
	case s != nil:
		return nil
	case id <= c.lastStreamID:
		closed, byServer := c.recentlyClosed.find(id)
		switch {
		case byServer:
			return errStaleFrame
		case closed:
			return newConnError(http2.ErrCodeStreamClosed, "HEADERS on a closed stream")
		case c.headers.pseudoCount == 0 && c.headers.endStream: // trailers of a stream that recentlyClosed has forgotten
			return errStaleFrame
		}
		return newConnError(http2.ErrCodeProtocol, "stream id is not increasing")
	case c.goAwaySent:
		return errStaleFrame
	}
	c.lastStreamID = id
	if len(c.streams) >= c.config.MaxStreams {
		return &streamError{id, http2.ErrCodeRefusedStream}
	}
	return nil
}

// handleTrailers stores the declared trailers of a request, and ends its body.
func (c *conn) handleTrailers(s *stream) error {
	b := &c.headers
	if !b.endStream || b.malformed || b.pseudoCount > 0 {
		return &streamError{s.id, http2.ErrCodeProtocol}
	}
	for _, headerField := range b.fields {
		name := c.canonicalName(headerField.Name)
		if _, declared := s.request.Trailer[name]; declared && httpguts.ValidTrailerHeader(name) {
			if s.receivedTrailer == nil {
				s.receivedTrailer = http.Header{}
			}
			s.receivedTrailer[name] = append(s.receivedTrailer[name], headerField.Value)
		}
	}
	return c.endRequest(s)
}

// endRequest is called when the request has arrived completely.
func (c *conn) endRequest(s *stream) error {
	if s.declaredLength >= 0 && s.receivedLength != s.declaredLength {
		return &streamError{s.id, http2.ErrCodeProtocol}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s.requestEnded = true // before the handler reads the end of the body and returns
	s.body.finish(io.EOF)
	if s.responseEnded {
		c.closeStream(s, nil)
	}
	return nil
}

// canonicalName returns http.CanonicalHeaderKey(name), from a cache if possible.
func (c *conn) canonicalName(name string) string {
	canonical, ok := c.canonicalNames[name]
	if !ok {
		canonical = http.CanonicalHeaderKey(name)
		if len(c.canonicalNames) < maxCachedNames && len(name) < 2*maxCachedNames {
			c.canonicalNames[strings.Clone(name)] = canonical
		}
	}
	return canonical
}
