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
	// large is the size in bytes from which header fields are read by turns: to take them apart
	// takes milliseconds. They are compressed: a byte may stand for a field.
	large = 8 << 10
	// unpackedLarge is that of what comes of them: a byte stands for what was sent before.
	unpackedLarge = 64 << 10
	// mostListed is how many fields a list may have: each takes a hundred bytes.
	mostListed = 10_000
	// compressed bounds what may be sent of header fields, as a multiple of what they may be.
	compressed = 2
	// usualNames is how many names of header fields a connection remembers.
	usualNames = 64
)

// errBad is what becomes of a stream whose client breaks the rules.
var errBad = errors.New("the client has broken the protocol")

// block is a list of header fields while its frames come. It is the reader's.
type block struct {
	decoder *hpack.Decoder
	limit   int    // of the list
	open    uint32 // the stream; 0 when no frame is to follow
	last    bool   // the stream ends
	came    int    // bytes of frames

	wire Wire
	turn bool // to read what is large

	tail      []byte              // of a field that has not come as a whole
	fields    []hpack.HeaderField // pseudo-fields first
	pseudo    int                 // of fields
	left      int                 // what the list may still have
	truncated bool
	bad       bool // malformed
}

func (b *block) init(limit int, w Wire) {
	b.limit, b.wire = limit, w
	b.decoder = hpack.NewDecoder(headerTable, b.emit)
	b.decoder.SetMaxStringLength(limit)
}

// begin begins a list.
func (b *block) begin(h head) {
	*b = block{
		decoder: b.decoder, wire: b.wire, limit: b.limit, fields: b.fields[:0],
		open: h.stream, last: h.has(http2.FlagHeadersEndStream), left: b.limit,
	}
	b.decoder.SetEmitEnabled(true)
}

// emit takes a field.
func (b *block) emit(f hpack.HeaderField) {
	if b.left -= int(f.Size()); b.left < 0 || len(b.fields) == mostListed {
		b.truncated = true
		b.decoder.SetEmitEnabled(false)
		return
	}
	if b.limit-b.left >= unpackedLarge {
		b.enter()
	}
	if f.IsPseudo() {
		b.bad = b.bad || b.pseudo < len(b.fields) || !b.isNew(f.Name)
		b.pseudo++
	} else if !validField(f) {
		b.bad = true
	}
	b.fields = append(b.fields, f)
}

// isNew tells pseudo-fields of requests that have not come yet.
func (b *block) isNew(name string) bool {
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

// validField tells fields that a request may have: RFC 9113, "HTTP Fields".
func validField(f hpack.HeaderField) bool {
	switch f.Name {
	case "connection", "proxy-connection", "keep-alive", "transfer-encoding", "upgrade":
		return false
	case "te":
		return f.Value == "trailers"
	}
	return isLower(f.Name) && httpguts.ValidHeaderFieldName(f.Name) && httpguts.ValidHeaderFieldValue(f.Value)
}

func isLower(name string) bool {
	for i := range len(name) {
		if 'A' <= name[i] && name[i] <= 'Z' {
			return false
		}
	}
	return true
}

// get returns the value of a pseudo-field.
func (b *block) get(name string) string {
	for _, f := range b.fields[:b.pseudo] {
		if f.Name == name {
			return f.Value
		}
	}
	return ""
}

// headers reads a frame that begins a list.
func (c *conn) headers(h head, p []byte) error {
	if h.stream%2 == 0 {
		return broken(http2.ErrCodeProtocol, "headers of a stream that is not the client's")
	}
	p, ok := unpad(h, p)
	if !ok {
		return broken(http2.ErrCodeProtocol, "more padding than there is room for")
	}
	c.block.begin(h)
	if h.has(http2.FlagHeadersPriority) {
		if len(p) < 5 {
			return broken(http2.ErrCodeFrameSize, "a priority that is too short")
		}
		c.block.bad = dependsOn(p) == h.stream
		p = p[5:]
	}
	return c.fragment(h, p)
}

func (c *conn) continuation(h head, p []byte) error {
	if c.block.open == 0 {
		return broken(http2.ErrCodeProtocol, "a continuation of nothing")
	}
	return c.fragment(h, p)
}

// mostFields is from how many fields in a frame on that it is large; each takes a microsecond.
const mostFields = 2000

// manyFields tells whether a frame may have so many: a byte stands for one that was sent before.
func manyFields(p []byte) bool {
	if len(p) < mostFields {
		return false
	}
	n := 0
	for _, b := range p {
		n += int(b >> 7)
	}
	return n >= mostFields
}

// enter waits for a turn.
func (b *block) enter() {
	if !b.turn {
		b.turn = true
		b.wire.EnterLarge()
	}
}

func (b *block) leave() {
	if b.turn {
		b.turn = false
		b.wire.LeaveLarge()
	}
}

// fragment reads a part of a list, of which there may be more.
func (c *conn) fragment(h head, p []byte) error {
	b := &c.block
	if b.came += len(p); b.came > compressed*b.limit {
		return broken(http2.ErrCodeEnhanceYourCalm, "more header fields than are read")
	}
	if b.came >= large || manyFields(p) {
		b.enter()
	}
	defer b.leave()
	if err := b.read(p); err != nil {
		return broken(http2.ErrCodeCompression, err.Error())
	}
	if !h.has(http2.FlagHeadersEndHeaders) {
		if n := b.came + b.limit - max(0, b.left); n >= large && !b.wire.KeepLarge(n) {
			return broken(http2.ErrCodeEnhanceYourCalm, "header fields that do not end, for which there is no room")
		}
		return nil
	}
	b.wire.KeepLarge(0)
	defer b.end()
	if err := b.close(); err != nil {
		return broken(http2.ErrCodeCompression, err.Error())
	}
	return c.list()
}

// list works on a list that is whole.
func (c *conn) list() error {
	b := &c.block
	id := b.open
	b.open = 0
	s, err := c.openStream(id)
	switch {
	case errors.Is(err, errIgnored):
		c.control++
		return nil
	case err != nil:
		return err
	case s != nil:
		return c.trailers(s)
	}
	return nil
}

// openStream begins the request whose header fields have come, or returns the stream that they end.
// A GOAWAY goes out before it or after it: what that accepted has begun.
func (c *conn) openStream(id uint32) (open *stream, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	open = c.streams[id]
	if err := c.mayOpen(open, id); err != nil || open != nil {
		return open, err
	}
	if c.err != nil {
		return nil, c.err
	}
	if c.block.bad {
		return nil, &streamError{id, http2.ErrCodeProtocol}
	}
	s := c.newStream(id)
	if s == nil {
		return nil, &streamError{id, http2.ErrCodeProtocol}
	}
	return nil, c.open(s)
}

// errIgnored tells that a frame was sent before its client knew that it is not wanted any more.
var errIgnored = errors.New("a frame of a stream that is over")

// mayOpen tells what is wrong with a list of header fields where it comes; s is nil where there is
// no such stream. The caller holds mu.
func (c *conn) mayOpen(s *stream, id uint32) error {
	switch {
	case s != nil && s.got:
		return &streamError{id, http2.ErrCodeStreamClosed}
	case s != nil:
		return nil
	case id <= c.last:
		closed, byUs := c.closed.find(id)
		switch {
		case byUs:
			return errIgnored
		case closed:
			return broken(http2.ErrCodeStreamClosed, "headers of a stream that is closed")
		case c.block.pseudo == 0 && c.block.last: // trailers of a stream that was reset long ago
			return errIgnored
		}
		return broken(http2.ErrCodeProtocol, "streams go backwards")
	case c.leaving:
		return errIgnored
	}
	if c.last = id; len(c.streams) >= c.config.MaxStreams {
		return &streamError{id, http2.ErrCodeRefusedStream}
	}
	return nil
}

// trailers ends a body.
func (c *conn) trailers(s *stream) error {
	b := &c.block
	if !b.last || b.bad || b.pseudo > 0 {
		return &streamError{s.id, http2.ErrCodeProtocol}
	}
	for _, f := range b.fields {
		name := c.canonical(f.Name)
		if _, declared := s.request.Trailer[name]; declared && httpguts.ValidTrailerHeader(name) {
			if s.trailer == nil {
				s.trailer = http.Header{}
			}
			s.trailer[name] = append(s.trailer[name], f.Value)
		}
	}
	return c.ended(s)
}

// ended is called when all of a request has come.
func (c *conn) ended(s *stream) error {
	if s.declared >= 0 && s.received != s.declared {
		return &streamError{s.id, http2.ErrCodeProtocol}
	}
	s.body.finish(io.EOF)
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.got = true; s.sent {
		c.close(s, nil)
	}
	return nil
}

// canonical is http.CanonicalHeaderKey.
func (c *conn) canonical(name string) string {
	known, ok := c.names[name]
	if !ok {
		known = http.CanonicalHeaderKey(name)
		if len(c.names) < usualNames && len(name) < 2*usualNames {
			c.names[strings.Clone(name)] = known
		}
	}
	return known
}
