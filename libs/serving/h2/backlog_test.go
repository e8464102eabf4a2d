package h2

import (
	"testing"
	"time"
)

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
	server := NewServer(Config{})
	var conns []*conn
	total := 0
	for more := true; more; {
		c := &conn{server: server}
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
	if remaining := server.extra.taken.Load(); remaining != 0 {
		t.Errorf("%d bytes are reserved after all connections ended, want 0", remaining)
	}
}

// deadlineWire is a Wire that implements SetDeadline only.
type deadlineWire struct{ Wire }

func (deadlineWire) SetDeadline(time.Time) error { return nil }
