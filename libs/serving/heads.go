package serving

import (
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"net/netip"
	"runtime"
	"sync"
	"time"
)

const (
	// largeHead is the size in bytes from which a header section is read by turns, and not taken apart
	// before all of it is here.
	largeHead = 8 << 10
	// mostLines is how many lines it may have: net/http takes a hundred bytes for each.
	mostLines = 10_000
	// slack is what net/http reads beyond its bound.
	slack = 4 << 10
	// keptHeads is how many bytes of large header sections are kept, of all clients, that have not
	// ended or whose requests are under way; those of an address may have half of it.
	keptHeads = 64 << 20
	// ownHeads are what an address may have whatever others keep.
	ownHeads = 64 << 10
	// lingering is how long who sent too much may read the answer before its connection is reset.
	lingering = 500 * time.Millisecond

	tooLarge = "HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n431 Request Header Fields Too Large"
)

// heads is what reading large header sections may take.
type heads struct {
	turns *turns

	mu   sync.Mutex // a leaf
	kept int        // bytes
	by   map[netip.Addr]int
}

func newHeads(turns int) *heads {
	return &heads{turns: newTurns(turns), by: map[netip.Addr]int{}}
}

// enter waits for a turn, for some time; false without one.
func (h *heads) enter(ctx context.Context, from netip.Addr) bool {
	ctx, cancel := context.WithTimeout(ctx, headersWait)
	defer cancel()
	return h.turns.enter(ctx, from) == nil
}

// keep takes room for n bytes more, or gives it back; false when there is none.
func (h *heads) keep(from netip.Addr, n int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if own := h.by[from] + n; n > 0 && own > ownHeads && (h.kept+n > keptHeads || own > keptHeads/2) {
		return false
	}
	h.kept += n
	if h.by[from] += n; h.by[from] == 0 {
		delete(h.by, from)
	}
	return true
}

// heldHead is from how many bytes on a header section counts whose request is under way: most are
// smaller by far, and such a request may last, as a watch does.
const heldHead = 16 << 10

// held is room that a request under way has.
type held struct {
	from  netip.Addr
	bytes int
}

// hold takes room for the header section of a request, until letGo; false when there is none.
func (h *heads) hold(r *http.Request) (held, bool) {
	n := 0
	for name, values := range r.Header {
		for _, v := range values {
			n += len(name) + len(v) + ownLine
		}
	}
	if n += len(r.RequestURI); n < heldHead || h == nil {
		return held{}, true
	}
	at, _ := netip.ParseAddrPort(r.RemoteAddr) // all that have none are one
	of := held{Network(at.Addr()), n}
	if !h.keep(of.from, n) {
		return held{}, false
	}
	return of, true
}

// ownLine is what a line of a header section takes beside its text.
const ownLine = 64

// letGo gives back what hold has taken.
func (h *heads) letGo(of held) {
	if of.bytes > 0 {
		h.keep(of.from, -of.bytes)
	}
}

// headConn is a connection of HTTP/1 whose header sections are bounded. net/http takes each line
// apart as it comes, so it is given large ones when they are whole and it is their turn.
type headConn struct {
	*tls.Conn
	heads *heads
	from  netip.Addr

	mu    sync.Mutex // net/http reads while a handler begins, and may close meanwhile
	in    bool       // what comes is a header section
	blank bool       // the line that comes is, so far
	came  int        // bytes of it
	lines int

	room int // what is taken of heads
	turn bool
	// asked is how many requests were found in what was read last.
	asked int

	// These are whose who reads is.
	whole []byte // a large one, which is to be given to net/http
	rest  []byte // what came after it
}

// headKey is that of a connection in the context of its requests.
type headKey struct{}

func newHeadConn(c *tls.Conn, h *heads) *headConn {
	out := &headConn{Conn: c, heads: h, from: remote(c)}
	out.begin()
	return out
}

// begin is called before a request.
func (c *headConn) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.in, c.blank, c.came, c.lines = true, true, 0, 0
}

// begun is called when a request is known. Who sends many at once lets others go first: nothing
// else would stop a connection that always has one more.
func (c *headConn) begun() {
	c.mu.Lock()
	c.in = false
	c.asked++
	more := c.asked > 1
	c.leave()
	c.mu.Unlock()
	if more {
		runtime.Gosched()
	}
}

// leave ends the turn. The caller holds mu.
func (c *headConn) leave() {
	if c.turn {
		c.turn = false
		c.heads.turns.leave()
	}
}

// Read implements net.Conn.
func (c *headConn) Read(p []byte) (int, error) {
	if len(c.whole) > 0 {
		n := copy(p, c.whole)
		c.whole = left(c.whole, n)
		return n, nil
	}
	c.mu.Lock()
	c.leave() // net/http refuses what it has, or a body comes
	if len(c.rest) == 0 {
		c.free()
	}
	c.mu.Unlock()
	n, err := c.next(p)
	c.mu.Lock()
	_, more := c.scan(p[:n])
	large := more && c.came >= largeHead
	c.mu.Unlock()
	if err != nil || !large {
		return n, err
	}
	return n, c.collect()
}

// next reads what has come.
func (c *headConn) next(p []byte) (int, error) {
	if len(c.rest) > 0 {
		n := copy(p, c.rest)
		c.rest = left(c.rest, n)
		return n, nil
	}
	n, err := c.Conn.Read(p)
	c.mu.Lock()
	c.asked = 0
	c.mu.Unlock()
	return n, err
}

// left is what follows n bytes, and nothing of what it was part of when there is no more: a connection
// lasts, and has given the room back.
func left(b []byte, n int) []byte {
	if n == len(b) {
		return nil
	}
	return b[n:]
}

func (c *headConn) release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.free()
}

// free gives the room back. The caller holds mu.
func (c *headConn) free() {
	if c.room > 0 {
		c.heads.keep(c.from, -c.room)
		c.room = 0
	}
}

// scan looks for the end of a header section, and tells where what follows it begins and whether more
// of it is to come. The caller holds mu.
func (c *headConn) scan(p []byte) (end int, more bool) {
	if !c.in {
		return 0, false
	}
	for i, b := range p {
		switch b {
		case '\n':
			if c.blank && c.lines > 0 {
				c.in = false
				c.came += i + 1
				return i + 1, false
			}
			if !c.blank { // lines before the first are ignored, or refused
				c.lines++
			}
			c.blank = true
		case '\r':
		default:
			c.blank = false
		}
	}
	c.came += len(p)
	return len(p), true
}

// collect keeps the rest of a large header section, and waits for a turn.
func (c *headConn) collect() error {
	var kept []byte
	for more := true; more; {
		if len(kept) == cap(kept) && !c.grow(&kept) {
			return c.refuse()
		}
		n, err := c.next(kept[len(kept):cap(kept)])
		part := kept[len(kept) : len(kept)+n]
		c.mu.Lock()
		end, unfinished := c.scan(part)
		tooMany := c.came > maxHeaderBytes+slack || c.lines > mostLines
		c.mu.Unlock()
		switch {
		case tooMany:
			return c.refuse()
		case err != nil && unfinished: // the end of what comes may come with the last of it
			c.release()
			return err
		}
		kept = kept[:len(kept)+end]
		if more = unfinished; end < n {
			c.rest = append(part[end:n:n], c.rest...)
		}
	}
	c.whole = kept
	entered := c.heads.enter(context.Background(), c.from)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.turn = entered
	return nil
}

// grow makes room for as much as there is.
func (c *headConn) grow(kept *[]byte) bool {
	n := max(largeHead, cap(*kept))
	if !c.heads.keep(c.from, n) {
		return false
	}
	c.mu.Lock()
	c.room += n
	c.mu.Unlock()
	*kept = append(make([]byte, 0, cap(*kept)+n), *kept...)
	return true
}

// refuse answers, as net/http would, and reads a little more, so that the answer arrives. It is the
// end of the connection.
func (c *headConn) refuse() error {
	c.rest = nil
	c.release()
	_ = c.Conn.SetDeadline(time.Now().Add(lingering))
	if _, err := io.WriteString(c.Conn, tooLarge); err == nil {
		if err = c.Conn.CloseWrite(); err == nil {
			_, _ = io.CopyN(io.Discard, c.Conn, maxHeaderBytes)
		}
	}
	_ = c.Conn.Close()
	return io.EOF // for net/http to say no more
}

// Write implements net.Conn. Who answers has taken apart what came, and may wait for the client.
func (c *headConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	c.leave()
	c.mu.Unlock()
	return c.Conn.Write(p)
}

// Close implements net.Conn.
func (c *headConn) Close() error {
	c.mu.Lock()
	c.leave()
	c.free()
	c.mu.Unlock()
	return c.Conn.Close()
}
