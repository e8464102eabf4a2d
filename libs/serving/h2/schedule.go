package h2

import (
	"runtime"
	"slices"
	"sync"

	"golang.org/x/net/http2"
)

const (
	// short is the size of data in bytes up to which they are queued beside those of other
	// streams, instead of being written by their own handler.
	short = 16 << 10
	// quantum is how many bytes of a large response are written before other streams go first.
	quantum = 128 << 10
	// rounds is how often a handler writes what other streams have queued, before a goroutine
	// takes over.
	rounds = 4
)

// schedule is what waits to be written, and the write token: the right to write to the wire.
// Guarded by conn.mu.
type schedule struct {
	queue     backlog   // frames
	spare     []*[]byte // of the backlog before
	scratch   [32]byte  // for small frames
	resetting int       // streams that the queue resets
	frames    int       // of data in the queue
	closing   []func()  // called once the queue is written: see response.OnClose
	writing   bool      // the token is taken
	yielding  bool      // a stream will take the token after a yield
	writers   []*stream // that wait for the token, to write large data
	blocked   []*stream // that wait for the window of the connection
	room      sync.Cond // of the reader, which waits while too much is queued
	flying    int       // bytes of the allowance that are being written
	writes    uint64    // begun
	written   uint64    // of these, completed
}

// startWriting takes the token, which must be free. The caller holds mu.
func (c *conn) startWriting() {
	c.writing, c.yielding = true, false
	c.startWaiting()
}

// flush writes the queue, unless the token is taken: then its holder does. The caller holds mu; s
// is its stream.
func (c *conn) flush(s *stream) {
	if c.queue.size > 0 && !c.writing {
		c.startWriting()
		c.release(s)
	}
}

// flushAsync is flush for callers that must not wait. The caller holds mu.
func (c *conn) flushAsync() {
	if c.queue.size > 0 && !c.writing {
		c.startWriting()
		go c.drain()
	}
}

// flushLater is flush after other streams have had time to queue their own frames. The caller holds mu.
func (c *conn) flushLater(s *stream) {
	if c.queue.size == 0 || c.writing || c.yielding {
		return
	}
	c.yielding = true
	c.mu.Unlock()
	runtime.Gosched()
	c.mu.Lock()
	if c.yielding { // else another stream has taken the token
		c.flush(s)
	}
}

// drain writes the queue in a goroutine of its own. It has the token.
func (c *conn) drain() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.release(nil)
}

// acquire waits for the token. The caller holds mu.
func (c *conn) acquire(s *stream) error {
	if err := s.failed(); err != nil {
		return err
	}
	if !c.writing {
		c.startWriting()
		return nil
	}
	c.writers = append(c.writers, s)
	for !s.handed && s.failed() == nil {
		s.wait()
	}
	err := s.failed()
	switch i := slices.Index(c.writers, s); {
	case s.handed:
		if s.handed = false; err != nil {
			c.release(s)
		}
	case i >= 0:
		c.writers = slices.Delete(c.writers, i, i+1)
	}
	return err
}

// release passes the token to the stream that waits longest, or frees it once the queue is empty.
// The caller holds mu; s is its stream, nil for none.
func (c *conn) release(s *stream) {
	for i := 0; c.err == nil && c.queue.size > 0 && len(c.writers) == 0; i++ {
		if s != nil && (i == rounds || i > 0 && c.queue.size > mostPending) {
			go c.drain()
			return
		}
		c.write(s, nil, false)
	}
	if len(c.writers) == 0 {
		c.writing = false
		c.runClosing()
		c.closeWhenDone()
		return
	}
	next := c.writers[0]
	c.writers = slices.Delete(c.writers, 0, 1)
	next.handed = true
	next.signal()
}

// runClosing calls what waits for the end of streams that was written. The caller holds mu.
func (c *conn) runClosing() {
	for _, f := range c.closing {
		f()
	}
	c.closing = nil
}

// write writes the queue, and data of s, for which the windows have room. The caller has the token,
// and holds mu, which is not held meanwhile.
func (c *conn) write(s *stream, p []byte, end bool) {
	large := s != nil && len(p) > 0
	if large {
		c.sent(s, len(p), end)
	}
	if c.err != nil {
		return
	}
	queue, resets, frames, closing := c.queue, c.resetting, c.frames, c.closing
	c.queue, c.resetting, c.frames, c.closing = backlog{records: c.spare}, 0, 0, nil
	c.spare, c.flying = nil, queue.extra
	c.room.Broadcast()
	c.writes++
	var id uint32
	if large {
		s.writing, id = true, s.id
	}
	c.mu.Unlock()
	err := c.emit(queue.records, id, p, end)
	c.wire.Sent(resets, frames, queue.size+len(p))
	c.server.extra.give(queue.extra)
	records := queue.free()
	for _, f := range closing {
		f()
	}
	c.mu.Lock()
	c.written++
	c.spare, c.flying = records, 0
	if err != nil {
		c.fail(err)
	}
	if large {
		s.writing = false
		if s.expired != nil {
			c.expire(s, s.expired)
		}
	}
}

// emit writes frames, and data as frames: together as much as a record has, and all records
// together.
func (c *conn) emit(records []*[]byte, id uint32, p []byte, end bool) error {
	if len(p) == 0 && len(records) == 1 {
		_, err := c.wire.Write(*records[0])
		return err
	}
	c.wire.Hold()
	err := c.emitRecords(records, id, p, end)
	if failed := c.wire.Release(); err == nil {
		err = failed
	}
	return err
}

func (c *conn) emitRecords(records []*[]byte, id uint32, p []byte, end bool) error {
	var last *[]byte // to which data are added
	for i, r := range records {
		if i == len(records)-1 && len(p) > 0 && len(*r) <= together/2 {
			last = r
			break
		}
		if _, err := c.wire.Write(*r); err != nil {
			return err
		}
	}
	if last == nil && len(p) > 0 {
		last = pieces.Get().(*[]byte)
		defer pieces.Put(last)
	}
	for len(p) > 0 {
		n := min(len(p), together-len(*last)-headLength)
		*last = appendHead(*last, n, http2.FrameData, endFlag(end && n == len(p)), id)
		*last = append(*last, p[:n]...)
		_, err := c.wire.Write(*last)
		*last = (*last)[:0]
		if err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}
