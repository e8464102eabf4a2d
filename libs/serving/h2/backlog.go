package h2

import (
	"sync"
	"sync/atomic"
)

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

// canQueue reports whether n bytes of a short part may be queued, and reserves what they need of the
// allowance. The caller holds mu, and must queue them.
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
