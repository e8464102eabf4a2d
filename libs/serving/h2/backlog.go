package h2

import (
	"sync"
	"sync/atomic"
)

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

// append copies p to the end of the queue.
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
