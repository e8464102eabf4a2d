package h2diff_test

import (
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// queue is one direction of a link. It works in a synctest bubble: a goroutine that waits for cond
// is durably blocked, so fake time can pass.
type queue struct {
	mu        sync.Mutex
	cond      *sync.Cond
	data      []byte
	capacity  int   // bytes after which a write blocks; 0 for no limit
	passed    int64 // bytes that have been read
	closed    bool
	readUntil time.Time // deadline of read; zero for none
	sendUntil time.Time // deadline of write; zero for none
}

func newQueue(capacity int) *queue {
	q := &queue{capacity: capacity}
	q.cond = sync.NewCond(&q.mu)
	return q
}

// hasPassed reports whether a deadline has passed.
func hasPassed(t time.Time) bool { return !t.IsZero() && !time.Now().Before(t) }

// read reads into data and blocks while the queue is empty.
func (q *queue) read(data []byte) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.data) == 0 {
		switch {
		case hasPassed(q.readUntil):
			return 0, os.ErrDeadlineExceeded
		case q.closed:
			return 0, io.EOF
		}
		q.cond.Wait()
	}
	n := copy(data, q.data)
	q.data = q.data[n:]
	q.passed += int64(n)
	q.cond.Broadcast()
	return n, nil
}

// write appends data and blocks while the queue is full.
func (q *queue) write(data []byte) (n int, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(data) > 0 {
		switch {
		case q.closed:
			return n, net.ErrClosed
		case hasPassed(q.sendUntil):
			return n, os.ErrDeadlineExceeded
		}
		room := len(data)
		if q.capacity > 0 {
			room = min(room, q.capacity-len(q.data))
		}
		if room <= 0 {
			q.cond.Wait()
			continue
		}
		q.data = append(q.data, data[:room]...)
		n, data = n+room, data[room:]
		q.cond.Broadcast()
	}
	return n, nil
}

func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.cond.Broadcast()
}

// takeAll returns what has been written, and whether the writer has closed the connection.
func (q *queue) takeAll() ([]byte, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	p := q.data
	q.passed += int64(len(p))
	q.data = nil
	q.cond.Broadcast()
	return p, q.closed
}

// wakeAt wakes blocked calls now and at the new deadline t, so that they check their deadlines. The
// caller holds mu.
func (q *queue) wakeAt(t time.Time) {
	q.cond.Broadcast()
	if !t.IsZero() {
		time.AfterFunc(time.Until(t), q.cond.Broadcast)
	}
}

// link is one end of an in-memory connection between a client and a server under test. Unlike
// net.Pipe, it buffers like a socket.
type link struct {
	received, out *queue
}

// newLink returns both ends of a connection that buffers capacity bytes in each direction; 0 means
// no limit.
func newLink(capacity int) (client, server *link) {
	up, down := newQueue(capacity), newQueue(capacity)
	return &link{received: down, out: up}, &link{received: up, out: down}
}

func (l *link) Read(p []byte) (int, error)  { return l.received.read(p) }
func (l *link) Write(p []byte) (int, error) { return l.out.write(p) }

// Delivered returns the number of bytes that the other end has read, and of those that it has not.
func (l *link) Delivered() (read, unread int64) {
	l.out.mu.Lock()
	defer l.out.mu.Unlock()
	return l.out.passed, int64(len(l.out.data))
}

func (l *link) Close() error {
	l.received.close()
	l.out.close()
	return nil
}

func (*link) LocalAddr() net.Addr  { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 443} }
func (*link) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 10_000} }

func (l *link) SetDeadline(t time.Time) error {
	_ = l.SetReadDeadline(t)
	return l.SetWriteDeadline(t)
}

func (l *link) SetReadDeadline(t time.Time) error {
	l.received.mu.Lock()
	defer l.received.mu.Unlock()
	l.received.readUntil = t
	l.received.wakeAt(t)
	return nil
}

func (l *link) SetWriteDeadline(t time.Time) error {
	l.out.mu.Lock()
	defer l.out.mu.Unlock()
	l.out.sendUntil = t
	l.out.wakeAt(t)
	return nil
}
