package h2

import (
	"sync"
	"sync/atomic"
)

const (
	// together is how much leaves in one write of TLS, in bytes: a record.
	together = 16 << 10
	// mostPending is how many bytes are pending until who has more waits.
	mostPending = 64 << 10
	// mostExtra is how many more bytes of short parts may be pending for a connection, and
	// allExtra for all of a server: hundreds of watches of one connection are told of the same
	// change without waiting for each other.
	mostExtra, allExtra = 1 << 20, 32 << 20
)

// pieces are buffers of one record. They are empty in the pool.
var pieces = sync.Pool{New: func() any { b := make([]byte, 0, together); return &b }}

// backlog is bytes to be written, in records. The zero value is empty.
type backlog struct {
	records []*[]byte
	size    int
	extra   int // of size, taken from the server's allowance
}

// put appends bytes.
func (b *backlog) put(p []byte) {
	b.size += len(p)
	for len(p) > 0 {
		last := len(b.records) - 1
		if last < 0 || len(*b.records[last]) == together {
			b.records = append(b.records, pieces.Get().(*[]byte))
			last++
		}
		record := b.records[last]
		n := min(len(p), together-len(*record))
		*record = append(*record, p[:n]...)
		p = p[n:]
	}
}

// free gives the records back, and returns their list for another backlog.
func (b *backlog) free() []*[]byte {
	for i, r := range b.records {
		*r = (*r)[:0]
		pieces.Put(r)
		b.records[i] = nil
	}
	return b.records[:0]
}

// allowance is what the connections of a server have beyond mostPending, in bytes.
type allowance struct{ taken atomic.Int64 }

func (a *allowance) take(n int) bool {
	if a.taken.Add(int64(n)) <= allExtra {
		return true
	}
	a.give(n)
	return false
}

func (a *allowance) give(n int) {
	if n > 0 {
		a.taken.Add(-int64(n))
	}
}

// roomFor tells whether n bytes of a short part may be pending, and takes what they need of the
// allowance. The caller holds mu, and puts them.
func (c *conn) roomFor(n int) bool {
	b := &c.queue
	n += headLength
	if b.size-b.extra+n <= mostPending {
		return true
	}
	// A stream that waits for the token writes the queue first: that must not grow meanwhile.
	if len(c.writers) > 0 || b.extra+c.flying+n > mostExtra || !c.server.extra.take(n) {
		return false
	}
	b.extra += n
	return true
}
