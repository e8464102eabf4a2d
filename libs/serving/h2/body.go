package h2

import (
	"io"
	"net/http"
	"sync"
)

// body is that of a request. Its methods but write, finish and close are for the handler.
type body struct {
	stream   *stream
	expected int64 // -1 when nobody knows
	want100  bool
	begun    bool   // somebody reads
	eof      func() // before the end is told

	mu   sync.Mutex // a leaf
	cond sync.Cond
	data []byte
	read int    // of data
	err  error  // at the end of data
	room []byte // of who waits for more, which goes there directly
	came int    // of room
}

func newBody(s *stream) *body {
	b := &body{stream: s, expected: s.declared}
	b.cond.L = &b.mu
	return b
}

// firstBody is what is made room for at first, in bytes.
const firstBody = 16 << 10

// write appends received data and returns the number of bytes that the handler no longer reads.
func (b *body) write(p []byte) (refused int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		return len(p)
	}
	defer b.cond.Broadcast()
	if len(b.data) == b.read {
		n := copy(b.room[b.came:], p)
		b.came += n
		if p = p[n:]; len(p) == 0 {
			return 0
		}
	}
	if b.data == nil && b.expected > 0 {
		b.data = make([]byte, 0, max(len(p), int(min(b.expected, firstBody))))
	}
	if b.read > 0 && len(b.data)+len(p) > cap(b.data) {
		b.data = b.data[:copy(b.data, b.data[b.read:])]
		b.read = 0
	}
	b.data = append(b.data, p...)
	return 0
}

// finish tells that all has come, or with another error than io.EOF why nothing more does.
func (b *body) finish(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err == nil {
		b.err = err
		b.cond.Broadcast()
	}
}

// close throws away what has come, and returns how much that was.
func (b *body) close(err error) (unread int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	unread = int64(len(b.data) - b.read)
	b.data, b.read = nil, 0
	if b.err == nil || b.err == io.EOF && unread > 0 {
		b.err = err
	}
	b.cond.Broadcast()
	return unread
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	if b.want100 {
		b.want100 = false
		b.stream.goOn()
	}
	if len(p) == 0 {
		return 0, nil
	}
	if !b.begun {
		if b.begun = true; b.expected < 0 || b.expected > unread {
			b.stream.begin()
		}
	}
	n, err := b.take(p)
	if n > 0 {
		b.stream.consumed(int64(n))
	}
	return n, err
}

func (b *body) take(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.room == nil && b.read == len(b.data) && b.err == nil {
		b.room = p
		for b.came == 0 && b.err == nil {
			b.cond.Wait()
		}
		n := b.came
		if b.room, b.came = nil, 0; n > 0 {
			return n, nil
		}
	}
	for b.read == len(b.data) && b.err == nil { // beside somebody else
		b.cond.Wait()
	}
	if b.read == len(b.data) {
		if b.err == io.EOF && b.eof != nil {
			b.eof()
			b.eof = nil
		}
		return 0, b.err
	}
	n := copy(p, b.data[b.read:])
	if b.read += n; b.read == len(b.data) {
		b.data, b.read = b.data[:0], 0
	}
	return n, nil
}

// Close implements io.Closer: what still comes is thrown away.
func (b *body) Close() error {
	b.stream.consumed(b.close(http.ErrBodyReadAfterClose))
	return nil
}

// begin lets the client send as much at a time as somebody reads.
func (s *stream) begin() {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.got || c.streams[s.id] != s {
		return
	}
	s.in.left += receives - unread
	s.in.step = receives / 4
	c.queue.put(appendWindowUpdate(c.scratch[:0], s.id, receives-unread))
	c.flush(s)
}

// consumed lets the client send more.
func (s *stream) consumed(n int64) {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.queue.size
	if c.refund(s, n); c.queue.size > before {
		c.flush(s)
	}
}
