package h2

import (
	"bytes"
	"testing"
	"time"
)

// TestBacklogKeepsOrder checks that bytes come out in order, and that all records but the last are
// full.
func TestBacklogKeepsOrder(t *testing.T) {
	var b backlog
	var want []byte
	for i, size := range []int{0, 9, recordSize - 9, 1, 3 * recordSize, recordSize - 1, 7} {
		p := bytes.Repeat([]byte{byte(i)}, size)
		b.append(p)
		want = append(want, p...)
	}
	if b.size != len(want) {
		t.Errorf("size is %d, want %d", b.size, len(want))
	}
	var got []byte
	for i, r := range b.records {
		if i < len(b.records)-1 && len(*r) != recordSize {
			t.Errorf("record %d of %d has %d bytes, want %d", i, len(b.records), len(*r), recordSize)
		}
		got = append(got, *r...)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("got %d bytes in the records, want the %d appended bytes", len(got), len(want))
	}
	if list := b.recycle(); len(list) != 0 || cap(list) == 0 {
		t.Errorf("recycle() returned a slice of length %d and capacity %d, want length 0 and capacity for reuse",
			len(list), cap(list))
	}
}

// TestQueueIsBounded checks the limits on queued bytes for a connection and for a server, and that
// a failed connection releases its share.
func TestQueueIsBounded(t *testing.T) {
	for _, part := range []int{1, 1000, maxQueuedData} {
		testQueueBound(t, part)
	}
}

// testQueueBound fills the queues of connections with frames of part bytes until the shared space
// is used.
func testQueueBound(t *testing.T, part int) {
	t.Helper()
	s := NewServer(Config{})
	var conns []*conn
	total := 0
	for more := true; more; {
		c := &conn{server: s}
		c.queueSpace.L = &c.mu
		c.wire = deadlineWire{}
		conns = append(conns, c)
		for c.reserveQueueSpace(part) {
			c.queue.append(make([]byte, frameHeaderLen+part))
		}
		mine := c.queue.size
		if least, most := maxPending-frameHeaderLen-part, maxPending+maxExtra; mine < least || mine > most ||
			len(conns) == 1 && mine < most-2*(frameHeaderLen+part) {
			t.Fatalf("a connection can queue %d bytes, want %d to %d", mine, least, most)
		}
		total += mine
		more = mine > maxPending
	}
	if most := maxTotalExtra + len(conns)*maxPending; total > most {
		t.Errorf("all connections queued %d bytes, want at most %d", total, most)
	}
	for _, c := range conns {
		c.terminate(errConnClosed)
	}
	if remaining := s.extra.taken.Load(); remaining != 0 {
		t.Errorf("%d bytes are reserved after all connections ended, want 0", remaining)
	}
}

// deadlineWire is a Wire that implements SetDeadline only.
type deadlineWire struct{ Wire }

func (deadlineWire) SetDeadline(time.Time) error { return nil }
