package h2

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/net/http2"
)

const (
	// maxQueuedData is the size in bytes up to which data is copied to the queue. The handler
	// writes larger data itself.
	maxQueuedData = 16 << 10
	// quantum is the number of bytes of a large response that are written before other streams get
	// the token.
	quantum = 128 << 10
	// maxInlineWrites is how often the goroutine of a handler writes frames that other streams have
	// queued, before it starts a goroutine for them.
	maxInlineWrites = 4
)

// schedule holds the queued frames, and the state of the write token. Only the holder of the token
// may write to the wire. Guarded by conn.mu.
type schedule struct {
	queue                backlog   // frames that are not written yet
	spareRecords         []*[]byte // the empty record list of the previous queue, for reuse
	scratch              [32]byte  // buffer for encoding small frames
	queuedResets         int       // number in the queue, for Wire.FramesSent
	queuedDataFrames     int       // number in the queue, for Wire.FramesSent
	closeFuncs           []func()  // called once the queue is written; see response.OnClose
	tokenTaken           bool      // the token is taken
	yielding             bool      // flushLater waits to take the token
	waitingForToken      []*stream // waiting for the token to write large data
	waitingForConnWindow []*stream // waiting for the connection window
	queueSpace           sync.Cond // signals the reader, which waits while the queue is too long
	extraInFlight        int       // backlog.extra of the queue that is being written
	writesStarted        uint64    // number of writes started
	writesCompleted      uint64    // number of writes completed
}

// startWriting takes the token, which must be free. The caller holds mu.
func (c *conn) startWriting() {
	c.tokenTaken = true
	c.yielding = false
	c.startProgressTimeout()
}

// flush writes the queue. If the token is taken, its holder writes the queue. The caller holds mu;
// s is its stream.
func (c *conn) flush(s *stream) {
	if c.queue.size > 0 && !c.tokenTaken {
		c.startWriting()
		c.releaseToken(s)
	}
}

// flushAsync is flush for callers that must not block. The caller holds mu.
func (c *conn) flushAsync() {
	if c.queue.size > 0 && !c.tokenTaken {
		c.startWriting()
		go c.writeQueueInBackground()
	}
}

// flushLater yields so that other streams can queue their frames, and then flushes. The caller
// holds mu.
func (c *conn) flushLater(s *stream) {
	if c.queue.size == 0 || c.tokenTaken || c.yielding {
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

// writeQueueInBackground writes the queue and releases the token, which the caller passes to it. It
// runs in a goroutine of its own.
func (c *conn) writeQueueInBackground() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.releaseToken(nil)
}

// acquireToken waits until s gets the token, or returns why s cannot send. The caller holds mu.
func (c *conn) acquireToken(s *stream) error {
	if err := s.sendError(); err != nil {
		return err
	}
	if !c.tokenTaken {
		c.startWriting()
		return nil
	}
	c.waitingForToken = append(c.waitingForToken, s)
	for !s.hasToken && s.sendError() == nil {
		s.wait()
	}
	err := s.sendError()
	i := slices.Index(c.waitingForToken, s)
	switch {
	case s.hasToken:
		s.hasToken = false
		if err != nil {
			c.releaseToken(s)
		}
	case i >= 0:
		c.waitingForToken = slices.Delete(c.waitingForToken, i, i+1)
	}
	return err
}

// releaseToken passes the token to the stream that has waited longest. If none waits, it writes the
// queue until it is empty and frees the token. The caller holds mu. s is its stream, or nil if the
// caller may block.
func (c *conn) releaseToken(s *stream) {
	for i := 0; c.err == nil && c.queue.size > 0 && len(c.waitingForToken) == 0; i++ {
		if s != nil && (i == maxInlineWrites || i > 0 && c.queue.size > maxPending) {
			go c.writeQueueInBackground()
			return
		}
		c.writeQueueAndData(s, nil, false)
	}
	if len(c.waitingForToken) == 0 {
		c.tokenTaken = false
		c.runCloseFuncs()
		c.scheduleClose()
		return
	}
	next := c.waitingForToken[0]
	c.waitingForToken = slices.Delete(c.waitingForToken, 0, 1)
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

// writeQueueAndData writes the queue, followed by the data p of s, if any, which fits into the
// windows. end marks the last data of the response. The caller holds the token and mu, which is
// released during the write.
func (c *conn) writeQueueAndData(s *stream, p []byte, end bool) {
	hasData := s != nil && len(p) > 0
	if hasData {
		c.countSent(s, len(p), end)
	}
	if c.err != nil {
		return
	}
	queue := c.queue
	resets := c.queuedResets
	frames := c.queuedDataFrames
	closeFuncs := c.closeFuncs
	c.queue = backlog{records: c.spareRecords}
	c.queuedResets = 0
	c.queuedDataFrames = 0
	c.closeFuncs = nil
	c.spareRecords = nil
	c.extraInFlight = queue.extra
	c.queueSpace.Broadcast()
	c.writesStarted++
	var id uint32
	if hasData {
		s.dataInFlight = true
		id = s.id
	}
	c.mu.Unlock()
	err := c.writeFrames(queue.records, id, p, end)
	c.wire.FramesSent(resets, frames, queue.size+len(p))
	c.server.extra.release(queue.extra)
	records := queue.recycle()
	for _, f := range closeFuncs {
		f()
	}
	c.mu.Lock()
	c.writesCompleted++
	c.spareRecords = records
	c.extraInFlight = 0
	if err != nil {
		c.terminate(err)
	}
	if hasData {
		s.dataInFlight = false
		if s.expiryReason != nil {
			c.expireStream(s, s.expiryReason)
		}
	}
}

// writeFrames writes the queued records, and p in DATA frames of the stream id, in as few TLS
// records as possible and in one write below TLS.
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

// writeRecords writes the queued records, followed by p in DATA frames of the stream id. The first
// DATA frame fills up the last queued record.
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
	// recordSize is the size in bytes of a full TLS record, and of a buffer in the queue.
	recordSize = 16 << 10
	// maxPending is the number of queued bytes beyond which streams wait.
	maxPending = 64 << 10
	// maxExtra is how many bytes of short parts a connection may queue beyond maxPending, and
	// maxTotalExtra limits the sum over all connections of a server. With it, hundreds of watches
	// on one connection can send the same change without waiting for each other.
	maxExtra, maxTotalExtra = 1 << 20, 32 << 20
)

// recordPool holds empty record buffers.
var recordPool = sync.Pool{New: func() any { b := make([]byte, 0, recordSize); return &b }}

// backlog is a queue of encoded frames, stored in buffers of recordSize bytes. The zero value is
// empty.
type backlog struct {
	records []*[]byte
	size    int
	extra   int // part of size that counts against the allowance of the server
}

// append appends bytes.
func (b *backlog) append(p []byte) {
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

// recycle returns the records to the pool. It returns the empty slice of records for reuse.
func (b *backlog) recycle() []*[]byte {
	for i, r := range b.records {
		*r = (*r)[:0]
		recordPool.Put(r)
		b.records[i] = nil
	}
	return b.records[:0]
}

// allowance counts the bytes that the connections of a server have queued beyond maxPending.
type allowance struct{ taken atomic.Int64 }

// reserve returns false if the connections would exceed maxTotalExtra.
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

// reserveQueueSpace reports whether n bytes of a short part may be queued. If they exceed
// maxPending, it reserves them in the allowance of the server. The caller holds mu, and must queue
// the bytes.
func (c *conn) reserveQueueSpace(n int) bool {
	b := &c.queue
	n += frameHeaderLen
	if b.size-b.extra+n <= maxPending {
		return true
	}
	// The queue must not grow while a stream waits for the token, because that stream writes the
	// queue first.
	if len(c.waitingForToken) > 0 || b.extra+c.extraInFlight+n > maxExtra || !c.server.extra.reserve(n) {
		return false
	}
	b.extra += n
	return true
}
