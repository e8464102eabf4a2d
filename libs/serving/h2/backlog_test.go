package h2

import (
	"bytes"
	"testing"
	"time"
)

// TestBacklog: what is put comes out in this order, in whole records but the last.
func TestBacklog(t *testing.T) {
	var b backlog
	var want []byte
	for i, size := range []int{0, 9, together - 9, 1, 3 * together, together - 1, 7} {
		p := bytes.Repeat([]byte{byte(i)}, size)
		b.put(p)
		want = append(want, p...)
	}
	if b.size != len(want) {
		t.Errorf("size is %d, want %d", b.size, len(want))
	}
	var got []byte
	for i, r := range b.records {
		if i < len(b.records)-1 && len(*r) != together {
			t.Errorf("record %d has %d bytes", i, len(*r))
		}
		got = append(got, *r...)
	}
	if !bytes.Equal(got, want) {
		t.Error("other bytes came out than were put")
	}
	if list := b.free(); len(list) != 0 || cap(list) == 0 {
		t.Errorf("the list of records has %d of %d after it is free", len(list), cap(list))
	}
}

// TestRoomIsBounded: a connection has its own room, then some of what all share, and what it
// took comes back when it ends.
func TestRoomIsBounded(t *testing.T) {
	for _, part := range []int{1, 1000, short} {
		roomIsBounded(t, part)
	}
}

func roomIsBounded(t *testing.T, part int) {
	t.Helper()
	s := NewServer(Config{})
	var conns []*conn
	total := 0
	for more := true; more; {
		c := &conn{server: s}
		c.room.L = &c.mu
		c.wire = deadWire{}
		conns = append(conns, c)
		for c.roomFor(part) {
			c.queue.put(make([]byte, headLength+part))
		}
		mine := c.queue.size
		if least, most := mostPending-headLength-part, mostPending+mostExtra; mine < least || mine > most || len(conns) == 1 && mine < most-2*(headLength+part) {
			t.Fatalf("a connection has room for %d bytes, want %d to %d", mine, least, most)
		}
		total += mine
		more = mine > mostPending
	}
	if most := allExtra + len(conns)*mostPending; total > most {
		t.Errorf("all connections have %d bytes pending, want at most %d", total, most)
	}
	for _, c := range conns {
		c.fail(errGone)
	}
	if left := s.extra.taken.Load(); left != 0 {
		t.Errorf("%d bytes are taken when all connections have ended", left)
	}
}

// deadWire is a Wire of which nothing but its deadline is asked.
type deadWire struct{ Wire }

func (deadWire) SetDeadline(time.Time) error { return nil }
