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
	// MaxHeaderLines is the largest number of lines in a header section. net/http needs a hundred
	// bytes of memory for each.
	MaxHeaderLines = 10_000
	// headerSlack is the number of bytes that net/http reads beyond MaxHeaderBytes.
	headerSlack = 4 << 10
	// MaxReservedHeaders limits the bytes of large header sections in memory, over all clients:
	// incomplete ones and those of requests in flight. One address may use half of it.
	MaxReservedHeaders = 64 << 20
	// minReservedHeaders is the number of bytes that an address may reserve even if the total is
	// used up.
	minReservedHeaders = 64 << 10
	// rejectLinger is how long a client with too large a header section may read the response
	// before its connection is reset.
	rejectLinger = 500 * time.Millisecond

	// DefaultMaxBytes is the usual limit of a header section, as in net/http.
	DefaultMaxBytes = 1 << 20

	responseTooLarge = "HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n431 Request Header Fields Too Large"
)

// ErrTooManyLargeHeaders means that the large header sections in memory have reached
// MaxReservedHeaders.
var ErrTooManyLargeHeaders = errors.New("too many requests with large headers are in progress, please try again later")

// HeaderLimits limits the parsing and the memory of large header sections.
type HeaderLimits struct {
	limiter *limit.Queue[string]

	mu        sync.Mutex     // leaf lock
	reserved  int            // bytes, over all addresses
	byAddress map[string]int // bytes, by Network
}

// NewHeaderLimits returns limits for a number of large header sections that are parsed at a time.
func NewHeaderLimits(permits int) *HeaderLimits {
	return &HeaderLimits{limiter: limit.New[string](limit.Options{Size: permits}), byAddress: map[string]int{}}
}

// acquirePermit waits for a permit, at most headerPermitTimeout. It reports whether it got one.
func (h *HeaderLimits) acquirePermit(ctx context.Context, network string) bool {
	ctx, cancel := context.WithTimeout(ctx, headerPermitTimeout)
	defer cancel()
	return h.limiter.Acquire(ctx, limit.Claim[string]{Key: network}) == nil
}

// reserveBytes reserves n bytes for an address, or releases -n bytes if n is negative. It reports
// whether the bytes were available.
func (h *HeaderLimits) reserveBytes(network string, n int) bool {
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

// reserveRequest reserves the size of the request's header section, if that is large. It reports
// whether the bytes were available. The caller must pass the reservation to releaseRequest.
func (h *HeaderLimits) reserveRequest(r *http.Request) (reservation, bool) {
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
	if !h.reserveBytes(res.network, n) {
		return reservation{}, false
	}
	return res, true
}

// lineOverhead is the memory of a header line in addition to its text, in bytes.
const lineOverhead = 64

// releaseRequest releases the bytes of a reservation.
func (h *HeaderLimits) releaseRequest(res reservation) {
	if res.bytes > 0 {
		h.reserveBytes(res.network, -res.bytes)
	}
}

// headerConn is an HTTP/1 connection with limited header sections. net/http parses each line as it
// arrives. To limit how many large header sections are parsed at a time, headerConn reads a large
// one completely and acquires a permit before it passes the section on to net/http.
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
	// requestsInRead is the number of requests whose header sections were in the bytes of the last
	// read.
	requestsInRead int

	// Used by the reader only.
	completeHeader []byte // the part of a complete large header section that net/http has not read yet
	afterHeader    []byte // bytes that were read after that header section
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
		h.beginHeader()
	}
}

// Reserve is called when the header section of a request was parsed. It reserves the bytes of a
// large section until end is called, and returns an error if they are not available.
func (h *HeaderLimits) Reserve(r *http.Request) (end func(), err error) {
	if c, ok := r.Context().Value(headerConnKey{}).(*headerConn); ok {
		c.finishHeader()
	}
	reserved, ok := h.reserveRequest(r)
	if !ok {
		err = ErrTooManyLargeHeaders
	}
	return func() { h.releaseRequest(reserved) }, err
}

func newHeaderConn(c *tls.Conn, h *HeaderLimits) *headerConn {
	out := &headerConn{Conn: c, limits: h, network: clientNetwork(c)}
	out.beginHeader()
	return out
}

// beginHeader prepares for the header section of the next request.
func (c *headerConn) beginHeader() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inHeader = true
	c.lineBlank = true
	c.headerBytes = 0
	c.lines = 0
}

// finishHeader is called when net/http has parsed the header section of a request. If one read
// returned several requests, it yields after each, because a connection that always has another
// request buffered would not block otherwise.
func (c *headerConn) finishHeader() {
	c.mu.Lock()
	c.inHeader = false
	c.requestsInRead++
	more := c.requestsInRead > 1
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
func (c *headerConn) Read(data []byte) (int, error) {
	if len(c.completeHeader) > 0 {
		n := copy(data, c.completeHeader)
		c.completeHeader = dropPrefix(c.completeHeader, n)
		return n, nil
	}
	c.mu.Lock()
	c.releasePermit() // net/http rejected the header section, or reads a body
	if len(c.afterHeader) == 0 {
		c.releaseBytesLocked()
	}
	c.mu.Unlock()
	n, err := c.readNext(data)
	c.mu.Lock()
	_, more := c.scanHeader(data[:n])
	large := more && c.headerBytes >= largeHeader
	c.mu.Unlock()
	if err != nil || !large {
		return n, err
	}
	return n, c.readLargeHeader()
}

// readNext returns buffered bytes, or reads from the connection.
func (c *headerConn) readNext(data []byte) (int, error) {
	if len(c.afterHeader) > 0 {
		n := copy(data, c.afterHeader)
		c.afterHeader = dropPrefix(c.afterHeader, n)
		return n, nil
	}
	n, err := c.Conn.Read(data)
	c.mu.Lock()
	c.requestsInRead = 0
	c.mu.Unlock()
	return n, err
}

// dropPrefix returns b without its first n bytes. It returns nil if none remain, so that an idle
// connection does not keep the buffer.
func dropPrefix(b []byte, n int) []byte {
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
		c.limits.reserveBytes(c.network, -c.reserved)
		c.reserved = 0
	}
}

// scanHeader looks in data for the empty line at the end of the header section. It returns the
// offset after that line, and false. If the section continues after data, it returns len(data), and
// true. It counts lines and bytes; a line ends with "\n" or "\r\n". The caller holds mu.
func (c *headerConn) scanHeader(data []byte) (end int, more bool) {
	if !c.inHeader {
		return 0, false
	}
	for i, b := range data {
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
	c.headerBytes += len(data)
	return len(data), true
}

// readLargeHeader reads the rest of a large header section and waits for a permit.
func (c *headerConn) readLargeHeader() error {
	var header []byte
	for more := true; more; {
		if len(header) == cap(header) && !c.growBuffer(&header) {
			return c.rejectTooLarge()
		}
		size, err := c.readNext(header[len(header):cap(header)])
		part := header[len(header) : len(header)+size]
		c.mu.Lock()
		end, unfinished := c.scanHeader(part)
		tooMany := c.headerBytes > DefaultMaxBytes+headerSlack || c.lines > MaxHeaderLines
		c.mu.Unlock()
		switch {
		case tooMany:
			return c.rejectTooLarge()
		case err != nil && unfinished: // EOF may be returned together with the last bytes
			c.releaseBytes()
			return err
		}
		header = header[:len(header)+end]
		more = unfinished
		if end < size {
			c.afterHeader = append(part[end:size:size], c.afterHeader...)
		}
	}
	c.completeHeader = header
	acquired := c.limits.acquirePermit(context.Background(), c.network)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hasPermit = acquired
	return nil
}

// growBuffer doubles the buffer, at least by largeHeader, and reserves the bytes.
func (c *headerConn) growBuffer(header *[]byte) bool {
	n := max(largeHeader, cap(*header))
	if !c.limits.reserveBytes(c.network, n) {
		return false
	}
	c.mu.Lock()
	c.reserved += n
	c.mu.Unlock()
	*header = append(make([]byte, 0, cap(*header)+n), *header...)
	return true
}

// rejectTooLarge writes the 431 response of net/http and closes the connection. Before, it discards
// bytes of the client for a while, because an early close would reset the connection and the client
// would lose the response.
func (c *headerConn) rejectTooLarge() error {
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
