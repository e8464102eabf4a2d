package h2

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/net/http2"
)

const (
	// maxQueuedData is the size in bytes up to which data is queued instead of being written by its
	// own handler.
	maxQueuedData = 16 << 10
	// quantum is the number of bytes of a large response that are written before other streams get
	// the token.
	quantum = 128 << 10
	// maxInlineWrites is how often a handler writes what other streams have queued, before a
	// goroutine takes over.
	maxInlineWrites = 4
)

// schedule holds the queued frames, and the state of the write token: the right to write to the wire.
// Guarded by conn.mu.
type schedule struct {
	queue         backlog   // frames that are not written yet
	spare         []*[]byte // the empty record list of the previous queue, for reuse
	scratch       [32]byte  // buffer for encoding small frames
	resetting     int       // RST_STREAM frames in the queue, for Wire.FramesSent
	frames        int       // DATA frames in the queue, for Wire.FramesSent
	closeFuncs    []func()  // called once the queue is written; see response.OnClose
	writing       bool      // the token is taken
	yielding      bool      // a stream takes the token after a yield
	writers       []*stream // waiting for the token to write large data
	blocked       []*stream // waiting for the connection window
	queueSpace    sync.Cond // signals the reader, which waits while the queue is too long
	extraInFlight int       // bytes of the allowance in the current write
	writes        uint64    // number of writes started
	written       uint64    // number of writes completed
}

// startWriting takes the token, which must be free. The caller holds mu.
func (c *conn) startWriting() {
	c.writing = true
	c.yielding = false
	c.startWaiting()
}

// flush writes the queue. If the token is taken, its holder writes the queue. The caller holds mu; s
// is its stream.
func (c *conn) flush(s *stream) {
	if c.queue.size > 0 && !c.writing {
		c.startWriting()
		c.release(s)
	}
}

// flushAsync is flush for callers that must not block. The caller holds mu.
func (c *conn) flushAsync() {
	if c.queue.size > 0 && !c.writing {
		c.startWriting()
		go c.drain()
	}
}

// flushLater is flush after a yield, so that other streams can queue their frames. The caller holds
// mu.
func (c *conn) flushLater(s *stream) {
	if c.queue.size == 0 || c.writing || c.yielding {
		return
	}
	c.yielding = true
	c.mu.Unlock()
	runtime.Gosched()
	c.mu.Lock()
	if c.yielding { // otherwise another stream has taken the token
		c.flush(s)
	}
}

// drain writes the queue in its own goroutine. It holds the token.
func (c *conn) drain() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.release(nil)
}

// acquire waits for the token. The caller holds mu.
func (c *conn) acquire(s *stream) error {
	if err := s.sendError(); err != nil {
		return err
	}
	if !c.writing {
		c.startWriting()
		return nil
	}
	c.writers = append(c.writers, s)
	for !s.hasToken && s.sendError() == nil {
		s.wait()
	}
	err := s.sendError()
	i := slices.Index(c.writers, s)
	switch {
	case s.hasToken:
		s.hasToken = false
		if err != nil {
			c.release(s)
		}
	case i >= 0:
		c.writers = slices.Delete(c.writers, i, i+1)
	}
	return err
}

// release passes the token to the stream that has waited longest, or frees it once the queue is
// empty. The caller holds mu; s is its stream, or nil.
func (c *conn) release(s *stream) {
	for i := 0; c.err == nil && c.queue.size > 0 && len(c.writers) == 0; i++ {
		if s != nil && (i == maxInlineWrites || i > 0 && c.queue.size > maxPending) {
			go c.drain()
			return
		}
		c.write(s, nil, false)
	}
	if len(c.writers) == 0 {
		c.writing = false
		c.runCloseFuncs()
		c.closeWhenDone()
		return
	}
	next := c.writers[0]
	c.writers = slices.Delete(c.writers, 0, 1)
	next.hasToken = true
	next.signal()
}

// runCloseFuncs calls the OnClose functions of streams whose end was written. The caller holds mu.
func (c *conn) runCloseFuncs() {
	for _, f := range c.closeFuncs {
		f()
	}
	c.closeFuncs = nil
}

// write writes the queue, and data of s that fits into the windows. The caller holds the token and
// mu. write releases mu while it writes.
func (c *conn) write(s *stream, p []byte, end bool) {
	hasData := s != nil && len(p) > 0
	if hasData {
		c.countSent(s, len(p), end)
	}
	if c.err != nil {
		return
	}
	queue := c.queue
	resets := c.resetting
	frames := c.frames
	closing := c.closeFuncs
	c.queue = backlog{records: c.spare}
	c.resetting = 0
	c.frames = 0
	c.closeFuncs = nil
	c.spare = nil
	c.extraInFlight = queue.extra
	c.queueSpace.Broadcast()
	c.writes++
	var id uint32
	if hasData {
		s.writing = true
		id = s.id
	}
	c.mu.Unlock()
	err := c.writeFrames(queue.records, id, p, end)
	c.wire.FramesSent(resets, frames, queue.size+len(p))
	c.server.extra.release(queue.extra)
	records := queue.release()
	for _, f := range closing {
		f()
	}
	c.mu.Lock()
	c.written++
	c.spare = records
	c.extraInFlight = 0
	if err != nil {
		c.fail(err)
	}
	if hasData {
		s.writing = false
		if s.expired != nil {
			c.expire(s, s.expired)
		}
	}
}

// writeFrames writes records and the DATA frames of p, in as few TLS records as possible and in one
// write below TLS.
func (c *conn) writeFrames(records []*[]byte, id uint32, p []byte, end bool) error {
	if len(p) == 0 && len(records) == 1 {
		_, err := c.wire.Write(*records[0])
		return err
	}
	c.wire.Cork()
	err := c.writeRecords(records, id, p, end)
	if uncorkErr := c.wire.Uncork(); err == nil {
		err = uncorkErr
	}
	return err
}

// writeRecords writes queued records, followed by the data of a stream.
func (c *conn) writeRecords(records []*[]byte, id uint32, p []byte, end bool) error {
	var last *[]byte // the record to which data is appended
	for i, r := range records {
		if i == len(records)-1 && len(p) > 0 && len(*r) <= recordSize/2 {
			last = r
			break
		}
		if _, err := c.wire.Write(*r); err != nil {
			return err
		}
	}
	if last == nil && len(p) > 0 {
		last = recordPool.Get().(*[]byte)
		defer recordPool.Put(last)
	}
	for len(p) > 0 {
		n := min(len(p), recordSize-len(*last)-frameHeaderLen)
		*last = appendFrameHeader(*last, n, http2.FrameData, endFlag(end && n == len(p)), id)
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

const (
	// recordSize is the size of a TLS record in bytes. It is written at once.
	recordSize = 16 << 10
	// maxPending is the number of queued bytes beyond which streams wait.
	maxPending = 64 << 10
	// maxExtra is how many more bytes of short parts may be queued on a connection, and
	// maxTotalExtra on all connections of a server. Hundreds of watches on one connection can send
	// the same change without waiting for each other.
	maxExtra, maxTotalExtra = 1 << 20, 32 << 20
)

// recordPool holds empty record buffers.
var recordPool = sync.Pool{New: func() any { b := make([]byte, 0, recordSize); return &b }}

// backlog holds bytes to be written, in records. The zero value is empty.
type backlog struct {
	records []*[]byte
	size    int
	extra   int // part of size that was taken from the server's allowance
}

// put appends bytes.
func (b *backlog) put(p []byte) {
	b.size += len(p)
	for len(p) > 0 {
		last := len(b.records) - 1
		if last < 0 || len(*b.records[last]) == recordSize {
			b.records = append(b.records, recordPool.Get().(*[]byte))
			last++
		}
		record := b.records[last]
		n := min(len(p), recordSize-len(*record))
		*record = append(*record, p[:n]...)
		p = p[n:]
	}
}

// release returns the records to the pool, and returns their empty list for reuse.
func (b *backlog) release() []*[]byte {
	for i, r := range b.records {
		*r = (*r)[:0]
		recordPool.Put(r)
		b.records[i] = nil
	}
	return b.records[:0]
}

// allowance counts the bytes that the connections of a server use beyond maxPending.
type allowance struct{ taken atomic.Int64 }

func (a *allowance) reserve(n int) bool {
	if a.taken.Add(int64(n)) <= maxTotalExtra {
		return true
	}
	a.release(n)
	return false
}

func (a *allowance) release(n int) {
	if n > 0 {
		a.taken.Add(-int64(n))
	}
}

// canQueue reports whether n bytes of a short part may be queued, and reserves what they need of
// the allowance. The caller holds mu, and must queue them.
func (c *conn) canQueue(n int) bool {
	b := &c.queue
	n += frameHeaderLen
	if b.size-b.extra+n <= maxPending {
		return true
	}
	// The queue must not grow while a stream waits for the token, because that stream writes the
	// queue first.
	if len(c.writers) > 0 || b.extra+c.extraInFlight+n > maxExtra || !c.server.extra.reserve(n) {
		return false
	}
	b.extra += n
	return true
}
