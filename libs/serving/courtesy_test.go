package serving

import (
	"bytes"
	"context"
	"io"
	"net"
	"testing"
	"time"
)

// TestCourtesyIsForShortAnswers: long answers give way for as long as short ones are
// remembered, and not at all without them.
func TestCourtesyIsForShortAnswers(t *testing.T) {
	var none *courtesy
	none.sent(1 << 20) // gives way to nobody
	told := 0
	c := &courtesy{told: func() { told++ }}
	c.sent(courteous)
	if got := c.since.Load(); got != 0 {
		t.Errorf("without short answers %d bytes count", got)
	}
	c.short()
	c.sent(courteous - 1)
	if got := c.since.Load(); got != courteous-1 {
		t.Errorf("%d bytes count after a short answer", got)
	}
	c.sent(1)
	if got := c.since.Load(); got != 0 {
		t.Errorf("nobody gave way after %d bytes", got)
	}
	if told != 0 {
		t.Errorf("told %d times that there is much, after one part", told)
	}
	c.last.Store(time.Now().Add(-2 * masses).UnixNano())
	if c.sent(courteous); told != 0 {
		t.Errorf("told %d times that there is much, after a part long after another", told)
	}
	c.last.Store(time.Now().Add(time.Minute).UnixNano()) // as if it was just now
	if c.sent(courteous); told != 1 {
		t.Errorf("told %d times that there is much, after two parts", told)
	}
	for sent := 0; sent < remembered; sent += courteous {
		c.sent(courteous)
	}
	if got := c.owed.Load(); got > 0 {
		t.Errorf("%d bytes are owed still", got)
	}
	c.since.Store(0)
	c.sent(1)
	if got := c.since.Load(); got != 0 {
		t.Error("a short answer is remembered too long")
	}
}

// TestWhatArrivesGivesWay: after as much as long answers do.
func TestWhatArrivesGivesWay(t *testing.T) {
	var none *courtesy
	none.received(1 << 20) // gives way to nobody
	c := &courtesy{}
	for name, tc := range map[string]struct {
		before func()
		bytes  int
		since  int64
	}{
		"nobody is waiting": {func() { c.owed.Store(0) }, courteous, 0},
		"a part":            {c.short, largeReceive, largeReceive},
		"enough":            {func() { c.short(); c.since.Store(courteous - largeReceive) }, largeReceive, 0},
	} {
		c.since.Store(0)
		tc.before()
		c.received(tc.bytes)
		if got := c.since.Load(); got != tc.since {
			t.Errorf("%s: %d bytes count", name, got)
		}
	}
}

// TestAKeptTurnIsGivenBack while its client does not read, and at the end.
func TestAKeptTurnIsGivenBack(t *testing.T) {
	if !ownWrites {
		t.Skip("the system's own writes are not known here")
	}
	h := &handshakes{sends: newTurns(1)}
	pair := func() (*turnConn, net.Conn) {
		client, server := connected(t)
		return newTurnConn(context.Background(), h, server), client
	}
	free := func() int {
		h.sends.mu.Lock()
		defer h.sends.mu.Unlock()
		return h.sends.free
	}
	for _, now := range []bool{true, false} {
		c, client := pair()
		c.keep(now)
		if want := map[bool]int{true: 0, false: 1}[now]; free() != want {
			t.Errorf("now %t: %d turns are free before the first write", now, free())
		}
		c.cork()
		if _, err := c.Write(make([]byte, largeSend)); err != nil || free() != 0 {
			t.Errorf("now %t: %d turns are free while a part is encrypted, %v", now, free(), err)
		}
		if err := c.uncork(); err != nil || free() != 0 {
			t.Errorf("now %t: %d turns are free between two writes, %v", now, free(), err)
		}
		large := bytes.Repeat([]byte("x"), 32<<20) // more than buffers of the system
		wrote := make(chan error)
		go func() {
			_, err := c.Write(large)
			c.brief()
			wrote <- err
		}()
		// Another has the turn meanwhile, or this waits for ever.
		if err := h.sends.enter(t.Context(), c.from); err != nil {
			t.Fatal(err)
		}
		small, _ := pair() // waits for nobody
		if _, err := small.Write(make([]byte, largeSend-1)); err != nil {
			t.Error(err)
		}
		h.sends.leave()
		if _, err := io.ReadFull(client, make([]byte, largeSend+len(large))); err != nil {
			t.Error(err)
		}
		if err := <-wrote; err != nil || free() != 1 {
			t.Errorf("now %t: %d turns are free at the end, %v", now, free(), err)
		}
		c.cork()
		c.keep(true)
		c.brief()
		if _, err := c.Write([]byte("what TLS says by itself")); err != nil || free() != 1 {
			t.Errorf("now %t: %d turns are free while something is held, %v", now, free(), err)
		}
		if err := c.uncork(); err != nil {
			t.Error(err)
		}
		if _, err := c.Write(make([]byte, largeSend)); err != nil || free() != 1 {
			t.Errorf("now %t: %d turns are free after a write by itself, %v", now, free(), err)
		}
	}
}
