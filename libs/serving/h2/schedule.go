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
	queuedResets         int       // RST_STREAM frames in the queue, for Wire.FramesSent
	queuedDataFrames     int       // DATA frames in the queue, for Wire.FramesSent
	closeFuncs           []func()  // called once the queue is written; see response.OnClose
	tokenTaken           bool      // a stream or a background goroutine holds the token
	yielding             bool      // a stream in flushLater has yielded and will then take the token
	waitingForToken      []*stream // streams with large data, in FIFO order
	waitingForConnWindow []*stream // streams that wait for the connection window, in FIFO order
	queueSpace           sync.Cond // signals the reader, which waits while the queue is too long
	extraInFlight        int       // value of backlog.extra for the queue that is being written
	writesStarted        uint64    // number of writes started
	writesCompleted      uint64    // number of writes completed
}

// startWriting takes the token, which must be free. The caller holds mu.
func (c *conn) startWriting() {
	c.tokenTaken = true
	c.yielding = false
	c.startProgressTimeout()
}

// flush writes the queue. If the token is taken, flush does nothing, because the holder writes the
// queue. The caller holds mu; s is its stream.
func (c *conn) flush(s *stream) {
	if c.queue.size > 0 && !c.tokenTaken {
		c.startWriting()
		c.releaseToken(s)
	}
}

// flushAsync writes the queue in a goroutine of its own, for callers that must not block. The
// caller holds mu.
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

// writeQueueInBackground writes the queue and releases the token. It runs in a goroutine of its
// own, which takes over the token from the goroutine that started it.
func (c *conn) writeQueueInBackground() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.releaseToken(nil)
}

// acquireToken blocks until s holds the token. It returns an error, and s does not hold the token,
// if s cannot send any more. The caller holds mu.
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
	if s.hasToken { // releaseToken has also removed s from waitingForToken
		s.hasToken = false
		if err != nil {
			c.releaseToken(s)
		}
		return err
	}
	if i := slices.Index(c.waitingForToken, s); i >= 0 {
		c.waitingForToken = slices.Delete(c.waitingForToken, i, i+1)
	}
	return err
}

// releaseToken passes the token to the stream that has waited longest. If none waits, it writes the
// queue until it is empty and frees the token. The caller holds the token and mu. s is the caller's
// stream, or nil in a background goroutine, which may write for any length of time.
func (c *conn) releaseToken(s *stream) {
	for writes := 0; c.err == nil && c.queue.size > 0 && len(c.waitingForToken) == 0; writes++ {
		// The handler of s must not write the frames of other streams forever.
		tooMuch := writes == maxInlineWrites || writes > 0 && c.queue.size > maxPending
		if s != nil && tooMuch {
			go c.writeQueueInBackground()
			return
		}
		c.writeQueue()
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

// writeQueue writes the queue. The caller holds the token and mu, which is released during the
// write.
func (c *conn) writeQueue() { c.writeQueueAndData(nil, nil, false) }

// writeQueueAndData writes the queue, followed by the data data of s. data must fit into the send
// windows and may be empty. end marks the last data of the response. The caller holds the token and
// mu, which is released during the write.
//
//  1. Count the data against the windows.
//  2. Take over the queue, so that other streams can queue frames during the write.
//  3. Write without holding mu, and call the OnClose functions of streams whose end was written.
//  4. Record the result. If s expired during the write, reset it now.
func (c *conn) writeQueueAndData(s *stream, data []byte, end bool) {
	hasData := len(data) > 0
	if hasData {
		c.countSent(s, len(data), end)
	}
	if c.err != nil {
		return
	}

	queue := c.queue
	resets := c.queuedResets
	dataFrames := c.queuedDataFrames
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
	err := c.writeFrames(queue.records, id, data, end)
	c.wire.FramesSent(resets, dataFrames, queue.size+len(data))
	c.server.extra.release(queue.extra)
	spareRecords := queue.recycle()
	for _, f := range closeFuncs {
		f()
	}
	c.mu.Lock()

	c.writesCompleted++
	c.spareRecords = spareRecords
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

// writeFrames writes the queued records, and data in DATA frames of the stream id, in as few TLS
// records as possible and in one write below TLS.
func (c *conn) writeFrames(records []*[]byte, id uint32, data []byte, end bool) error {
	if len(data) == 0 && len(records) == 1 {
		_, err := c.wire.Write(*records[0])
		return err
	}
	c.wire.Cork()
	err := c.writeRecords(records, id, data, end)
	if uncorkErr := c.wire.Uncork(); err == nil {
		err = uncorkErr
	}
	return err
}

// writeRecords writes the queued records, followed by data in DATA frames of the stream id. The
// first DATA frame fills up the last queued record.
func (c *conn) writeRecords(records []*[]byte, id uint32, data []byte, end bool) error {
	var last *[]byte // the buffer in which DATA frames are assembled
	for i, r := range records {
		hasRoomForData := len(*r) <= recordSize/2
		if i == len(records)-1 && len(data) > 0 && hasRoomForData {
			last = r
			break
		}
		if _, err := c.wire.Write(*r); err != nil {
			return err
		}
	}
	if last == nil && len(data) > 0 {
		last = recordPool.Get().(*[]byte)
		defer recordPool.Put(last)
	}
	for len(data) > 0 {
		n := min(len(data), recordSize-len(*last)-frameHeaderLen)
		*last = appendFrameHeader(*last, n, http2.FrameData, endFlag(end && n == len(data)), id)
		*last = append(*last, data[:n]...)
		_, err := c.wire.Write(*last)
		*last = (*last)[:0]
		if err != nil {
			return err
		}
		data = data[n:]
	}
	return nil
}

const (
	// recordSize is the size in bytes of a full TLS record, and of a buffer in the queue.
	recordSize = 16 << 10
	// maxPending is the number of queued bytes beyond which streams wait.
	maxPending = 64 << 10
	// maxExtra is how many bytes of short parts a connection may queue beyond maxPending. With it,
	// hundreds of watches on one connection can send the same change without waiting for each
	// other.
	maxExtra = 1 << 20
	// maxTotalExtra is how many bytes beyond maxPending all connections of a server may queue.
	maxTotalExtra = 32 << 20
)

// recordPool holds empty record buffers.
var recordPool = sync.Pool{New: func() any { b := make([]byte, 0, recordSize); return &b }}

// backlog is a queue of encoded frames, stored in buffers of recordSize bytes. The zero value is
// empty.
type backlog struct {
	records []*[]byte
	size    int // in bytes
	extra   int // bytes of size that are reserved in Server.extra
}

// append copies data to the end of the queue.
func (b *backlog) append(data []byte) {
	b.size += len(data)
	for len(data) > 0 {
		last := len(b.records) - 1
		if last < 0 || len(*b.records[last]) == recordSize {
			b.records = append(b.records, recordPool.Get().(*[]byte))
			last++
		}
		record := b.records[last]
		n := min(len(data), recordSize-len(*record))
		*record = append(*record, data[:n]...)
		data = data[n:]
	}
}

// recycle returns the buffers to recordPool, and the emptied slice b.records for reuse.
func (b *backlog) recycle() []*[]byte {
	for i, r := range b.records {
		*r = (*r)[:0]
		recordPool.Put(r)
		b.records[i] = nil
	}
	return b.records[:0]
}

// allowance counts the bytes that the connections of a server have queued beyond maxPending. It is
// safe for concurrent use.
type allowance struct{ taken atomic.Int64 }

// reserve reserves n bytes. If this would exceed maxTotalExtra, it reserves nothing and returns
// false.
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

// reserveQueueSpace reports whether a DATA frame with n bytes may be queued. If the queue would
// exceed maxPending, it reserves the frame in the allowance of the server. If it returns true, the
// caller must queue the frame. The caller holds mu.
func (c *conn) reserveQueueSpace(n int) bool {
	b := &c.queue
	n += frameHeaderLen
	if b.size-b.extra+n <= maxPending {
		return true
	}
	// The queue must not grow while a stream waits for the token, because that stream writes the
	// queue first.
	if len(c.waitingForToken) > 0 {
		return false
	}
	if b.extra+c.extraInFlight+n > maxExtra || !c.server.extra.reserve(n) {
		return false
	}
	b.extra += n
	return true
}
