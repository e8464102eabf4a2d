package conns

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"runtime"
	"sync"
	"time"

	"binnacle/libs/limit"
)

const (
	// largeHeader is the size in bytes from which a header section is read completely, and then
	// parsed under a permit.
	largeHeader = 8 << 10
	// MaxHeaderLines is the largest number of lines. net/http needs a hundred bytes for each.
	MaxHeaderLines = 10_000
	// headerSlack is the number of bytes that net/http reads beyond MaxHeaderBytes.
	headerSlack = 4 << 10
	// MaxReservedHeaders limits the bytes of large header sections in memory, over all clients:
	// incomplete ones and those of requests in flight. One address may use half of it.
	MaxReservedHeaders = 64 << 20
	// minReservedHeaders is the number of bytes that an address may reserve even if the total is used
	// up.
	minReservedHeaders = 64 << 10
	// rejectLinger is how long a client with too large a header section may read the response
	// before its connection is reset.
	rejectLinger = 500 * time.Millisecond

	// DefaultMaxBytes is the usual limit of a header section, as in net/http.
	DefaultMaxBytes = 1 << 20

	responseTooLarge = "HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n431 Request Header Fields Too Large"
)

// ErrTooManyLargeHeaders means that MaxReservedHeaders is used up.
var ErrTooManyLargeHeaders = errors.New("too many requests with large headers are in progress, please try again later")

// HeaderLimits limits the parsing and the memory of large header sections.
type HeaderLimits struct {
	limiter *limit.Queue[string]

	mu        sync.Mutex // leaf lock
	reserved  int        // bytes
	byAddress map[string]int
}

// NewHeaderLimits returns limits for a number of large header sections that are parsed at a time.
func NewHeaderLimits(permits int) *HeaderLimits {
	return &HeaderLimits{limiter: limit.New[string](limit.Options{Size: permits}), byAddress: map[string]int{}}
}

// acquire waits for a permit, at most headerPermitTimeout. It reports whether it got one.
func (h *HeaderLimits) acquire(ctx context.Context, network string) bool {
	ctx, cancel := context.WithTimeout(ctx, headerPermitTimeout)
	defer cancel()
	return h.limiter.Acquire(ctx, limit.Claim[string]{Key: network}) == nil
}

// reserve reserves n bytes, or releases -n if n is negative. It reports whether they were
// available.
func (h *HeaderLimits) reserve(network string, n int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	total := h.byAddress[network] + n
	exceeds := h.reserved+n > MaxReservedHeaders || total > MaxReservedHeaders/2
	if n > 0 && total > minReservedHeaders && exceeds {
		return false
	}
	h.reserved += n
	h.byAddress[network] += n
	if h.byAddress[network] == 0 {
		delete(h.byAddress, network)
	}
	return true
}

// minReservation is the size in bytes from which the header section of a request in flight is
// counted. Most header sections are far smaller, and such a request may last, as a watch does.
const minReservation = 16 << 10

// reservation holds the bytes reserved for a request in flight.
type reservation struct {
	network string
	bytes   int
}

// reserveFor reserves the size of the request's header section until release. It reports whether
// the bytes were available.
func (h *HeaderLimits) reserveFor(r *http.Request) (reservation, bool) {
	n := 0
	for name, values := range r.Header {
		for _, v := range values {
			n += len(name) + len(v) + lineOverhead
		}
	}
	n += len(r.RequestURI)
	if n < minReservation || h == nil {
		return reservation{}, true
	}
	res := reservation{NetworkOf(r), n}
	if !h.reserve(res.network, n) {
		return reservation{}, false
	}
	return res, true
}

// lineOverhead is the memory of a header line in addition to its text, in bytes.
const lineOverhead = 64

// release returns what reserveFor reserved.
func (h *HeaderLimits) release(res reservation) {
	if res.bytes > 0 {
		h.reserve(res.network, -res.bytes)
	}
}

// headerConn is an HTTP/1 connection with limited header sections. net/http parses each line as it
// arrives, so headerConn passes a large header section on only when it is complete and a permit is
// held.
type headerConn struct {
	*tls.Conn
	limits  *HeaderLimits
	network string

	mu          sync.Mutex // net/http reads while a handler starts, and may close at the same time
	inHeader    bool       // the next bytes belong to a header section
	lineBlank   bool       // the current line is empty so far
	headerBytes int        // bytes of the header section so far
	lines       int        // lines of the header section so far

	reserved  int // bytes reserved in limits
	hasPermit bool
	// pipelined is the number of requests found in the bytes of the last read.
	pipelined int

	// Used by the reader only.
	complete    []byte // the part of a complete large header section that net/http has not read yet
	afterHeader []byte // bytes that were read after that header section
}

// headerConnKey is the context key of an HTTP/1 connection.
type headerConnKey struct{}

// WithConn returns the context for the requests of a connection.
func WithConn(ctx context.Context, c net.Conn) context.Context {
	if h, ok := c.(*headerConn); ok {
		ctx = context.WithValue(ctx, headerConnKey{}, h)
	}
	return ctx
}

// BelowTLS returns the connection below a TLS connection, or nil if a Listener did not accept it.
func BelowTLS(c net.Conn) *Conn {
	if t, ok := c.(interface{ NetConn() net.Conn }); ok {
		below, _ := t.NetConn().(*Conn)
		return below
	}
	return nil
}

// Idle prepares an idle HTTP/1 connection for its next request.
func Idle(c net.Conn) {
	if h, ok := c.(*headerConn); ok {
		h.expectHeader()
	}
}

// Reserve is called when the header section of a request was parsed. It reserves the bytes of a large
// section until end is called, and returns an error if they are not available.
func (h *HeaderLimits) Reserve(r *http.Request) (end func(), err error) {
	if c, ok := r.Context().Value(headerConnKey{}).(*headerConn); ok {
		c.headerDone()
	}
	reserved, ok := h.reserveFor(r)
	if !ok {
		err = ErrTooManyLargeHeaders
	}
	return func() { h.release(reserved) }, err
}

func newHeaderConn(c *tls.Conn, h *HeaderLimits) *headerConn {
	out := &headerConn{Conn: c, limits: h, network: clientNetwork(c)}
	out.expectHeader()
	return out
}

// expectHeader is called before each request.
func (c *headerConn) expectHeader() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inHeader = true
	c.lineBlank = true
	c.headerBytes = 0
	c.lines = 0
}

// headerDone is called when the header section of a request was parsed. After each further request
// of one read it yields, because nothing else interrupts a connection that always has another
// request buffered.
func (c *headerConn) headerDone() {
	c.mu.Lock()
	c.inHeader = false
	c.pipelined++
	more := c.pipelined > 1
	c.releasePermit()
	c.mu.Unlock()
	if more {
		runtime.Gosched()
	}
}

// releasePermit releases the permit if one is held. The caller holds mu.
func (c *headerConn) releasePermit() {
	if c.hasPermit {
		c.hasPermit = false
		c.limits.limiter.Release(limit.Claim[string]{})
	}
}

// Read implements net.Conn.
func (c *headerConn) Read(p []byte) (int, error) {
	if len(c.complete) > 0 {
		n := copy(p, c.complete)
		c.complete = remainder(c.complete, n)
		return n, nil
	}
	c.mu.Lock()
	c.releasePermit() // net/http rejected the header section, or reads a body
	if len(c.afterHeader) == 0 {
		c.releaseBytesLocked()
	}
	c.mu.Unlock()
	n, err := c.readNext(p)
	c.mu.Lock()
	_, more := c.scan(p[:n])
	large := more && c.headerBytes >= largeHeader
	c.mu.Unlock()
	if err != nil || !large {
		return n, err
	}
	return n, c.readLargeHeader()
}

// readNext returns buffered bytes, or reads from the connection.
func (c *headerConn) readNext(p []byte) (int, error) {
	if len(c.afterHeader) > 0 {
		n := copy(p, c.afterHeader)
		c.afterHeader = remainder(c.afterHeader, n)
		return n, nil
	}
	n, err := c.Conn.Read(p)
	c.mu.Lock()
	c.pipelined = 0
	c.mu.Unlock()
	return n, err
}

// remainder returns b without its first n bytes. It returns nil if none remain, so that an idle
// connection does not keep the buffer.
func remainder(b []byte, n int) []byte {
	if n == len(b) {
		return nil
	}
	return b[n:]
}

func (c *headerConn) releaseBytes() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.releaseBytesLocked()
}

// releaseBytesLocked returns the reserved bytes. The caller holds mu.
func (c *headerConn) releaseBytesLocked() {
	if c.reserved > 0 {
		c.limits.reserve(c.network, -c.reserved)
		c.reserved = 0
	}
}

// scan looks for the end of the header section in p. It returns the offset after the section, and
// whether more of it has to follow. The caller holds mu.
func (c *headerConn) scan(p []byte) (end int, more bool) {
	if !c.inHeader {
		return 0, false
	}
	for i, b := range p {
		switch b {
		case '\n':
			if c.lineBlank && c.lines > 0 {
				c.inHeader = false
				c.headerBytes += i + 1
				return i + 1, false
			}
			if !c.lineBlank { // empty lines before the first line do not count
				c.lines++
			}
			c.lineBlank = true
		case '\r':
		default:
			c.lineBlank = false
		}
	}
	c.headerBytes += len(p)
	return len(p), true
}

// readLargeHeader reads the rest of a large header section and waits for a permit.
func (c *headerConn) readLargeHeader() error {
	var header []byte
	for more := true; more; {
		if len(header) == cap(header) && !c.grow(&header) {
			return c.reject()
		}
		n, err := c.readNext(header[len(header):cap(header)])
		part := header[len(header) : len(header)+n]
		c.mu.Lock()
		end, unfinished := c.scan(part)
		tooMany := c.headerBytes > DefaultMaxBytes+headerSlack || c.lines > MaxHeaderLines
		c.mu.Unlock()
		switch {
		case tooMany:
			return c.reject()
		case err != nil && unfinished: // EOF may be returned together with the last bytes
			c.releaseBytes()
			return err
		}
		header = header[:len(header)+end]
		more = unfinished
		if end < n {
			c.afterHeader = append(part[end:n:n], c.afterHeader...)
		}
	}
	c.complete = header
	acquired := c.limits.acquire(context.Background(), c.network)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hasPermit = acquired
	return nil
}

// grow doubles the buffer, at least by largeHeader, and reserves the bytes.
func (c *headerConn) grow(header *[]byte) bool {
	n := max(largeHeader, cap(*header))
	if !c.limits.reserve(c.network, n) {
		return false
	}
	c.mu.Lock()
	c.reserved += n
	c.mu.Unlock()
	*header = append(make([]byte, 0, cap(*header)+n), *header...)
	return true
}

// reject responds as net/http would, reads a little more so that the client receives the response,
// and closes the connection.
func (c *headerConn) reject() error {
	c.afterHeader = nil
	c.releaseBytes()
	_ = c.Conn.SetDeadline(time.Now().Add(rejectLinger))
	if _, err := io.WriteString(c.Conn, responseTooLarge); err == nil {
		if err = c.Conn.CloseWrite(); err == nil {
			_, _ = io.CopyN(io.Discard, c.Conn, DefaultMaxBytes)
		}
	}
	_ = c.Conn.Close()
	return io.EOF // net/http logs nothing for EOF
}

// Write implements net.Conn. The header section is parsed by now, and the write may wait for the
// client.
func (c *headerConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	c.releasePermit()
	c.mu.Unlock()
	return c.Conn.Write(p)
}

// Close implements net.Conn.
func (c *headerConn) Close() error {
	c.mu.Lock()
	c.releasePermit()
	c.releaseBytesLocked()
	c.mu.Unlock()
	return c.Conn.Close()
}
