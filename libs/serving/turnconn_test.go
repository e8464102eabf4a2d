package serving

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"slices"
	"testing"
)

// counted is a connection that remembers each write.
type counted struct {
	net.Conn
	writes [][]byte
	err    error
}

func (c *counted) Write(p []byte) (int, error) {
	c.writes = append(c.writes, bytes.Clone(p))
	return len(p), c.err
}

func (c *counted) RemoteAddr() net.Addr { return &net.TCPAddr{} }

// connected are both ends of a connection of the system's.
func connected(t *testing.T) (client, server net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if client, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if server, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(); server.Close() })
	return client, server
}

// TestHeldWritesLeaveTogether: what is written while a connection is corked leaves at
// once, in its order, when nothing more comes.
func TestHeldWritesLeaveTogether(t *testing.T) {
	below := &counted{}
	c := newTurnConn(context.Background(), &handshakes{sends: newTurns(1)}, below)
	write := func(s string) {
		t.Helper()
		if n, err := c.Write([]byte(s)); n != len(s) || err != nil {
			t.Fatalf("%d bytes, %v", n, err)
		}
	}
	uncork := func() {
		t.Helper()
		if err := c.uncork(); err != nil {
			t.Fatal(err)
		}
	}
	write("a")
	c.cork()
	uncork() // nothing was written
	c.cork()
	write("b")
	write("c")
	write("d")
	uncork()
	write("e")
	c.cork()
	write("f")
	uncork()
	if got := string(bytes.Join(below.writes, []byte(" "))); got != "a bcd e f" {
		t.Errorf("written: %s", got)
	}

	gone := errors.New("gone")
	below.err = gone
	c.cork()
	write("g")
	if err := c.uncork(); !errors.Is(err, gone) {
		t.Errorf("a write that failed: %v", err)
	}
	below.err = nil
	if _, err := c.Write([]byte("h")); !errors.Is(err, gone) {
		t.Errorf("a write after one that failed: %v", err)
	}
	if err := c.uncork(); !errors.Is(err, gone) {
		t.Errorf("nothing held after a write that failed: %v", err)
	}
}

// TestLargeFramesAreNotHeld: frames are as large as clients allow, and what is held of them
// is not.
func TestLargeFramesAreNotHeld(t *testing.T) {
	below := &counted{}
	c := newTurnConn(context.Background(), &handshakes{sends: newTurns(1)}, below)
	record, all := bytes.Repeat([]byte("0123456789abcdef"), 1<<10), 0
	c.cork()
	for all < 1<<20 {
		if _, err := c.Write(record); err != nil {
			t.Fatal(err)
		}
		if all += len(record); cap(c.held) > heldRoom {
			t.Fatalf("after %d bytes, %d are held", all, cap(c.held))
		}
	}
	if err := c.uncork(); err != nil {
		t.Fatal(err)
	}
	if got := bytes.Join(below.writes, nil); !bytes.Equal(got, bytes.Repeat(record, all/len(record))) {
		t.Errorf("%d bytes of %d were written", len(got), all)
	}
	gone := errors.New("gone")
	c.cork()
	for below.err = gone; ; {
		if _, err := c.Write(record); err != nil {
			if !errors.Is(err, gone) {
				t.Error(err)
			}
			break
		}
	}
	below.err = nil
	writes := len(below.writes)
	if err := c.uncork(); !errors.Is(err, gone) || len(below.writes) != writes {
		t.Errorf("what is held after a write that failed: %v, and %d writes", err, len(below.writes)-writes)
	}
}

// sendLarge writes p as large parts of a response are written.
func sendLarge(c *turnConn, p []byte) error {
	for part := range slices.Chunk(p, 64<<10) {
		c.cork()
		for record := range slices.Chunk(part, 16<<10) {
			if _, err := c.Write(record); err != nil {
				break // uncork returns it
			}
		}
		if err := c.uncork(); err != nil {
			return err
		}
	}
	return nil
}

// TestBlockedWritesHoldNoPermit: with one permit, one client gets all of a large response while
// others read nothing of theirs.
func TestBlockedWritesHoldNoPermit(t *testing.T) {
	h := &handshakes{sends: newTurns(1)}
	pair := func() (*turnConn, net.Conn) {
		client, server := connected(t)
		return newTurnConn(context.Background(), h, server), client
	}
	large := bytes.Repeat([]byte("0123456789abcdef"), 2<<20) // more than the kernel buffers
	const silent = 4
	ended := make(chan error, silent)
	var conns []*turnConn
	for range silent {
		c, _ := pair()
		conns = append(conns, c)
		go func() { ended <- sendLarge(c, large) }()
	}
	c, client := pair()
	written := make(chan struct{})
	go func() {
		defer close(written)
		_ = sendLarge(c, large)
		_ = c.Close()
	}()
	var got bytes.Buffer
	if _, err := got.ReadFrom(client); err != nil || !bytes.Equal(got.Bytes(), large) {
		t.Errorf("received %d bytes of %d: %v", got.Len(), len(large), err)
	}
	<-written
	for _, c := range conns {
		_ = c.Close()
	}
	for range silent {
		if err := <-ended; err == nil {
			t.Error("a write to a client that reads nothing succeeded")
		}
	}
	if h.sends.free != 1 || len(h.sends.order) > 0 {
		t.Errorf("%d permits are free at the end, %v wait", h.sends.free, h.sends.order)
	}
}

// TestHeldWritesHoldAPermit from the first held byte until they are written.
func TestHeldWritesHoldAPermit(t *testing.T) {
	h := &handshakes{sends: newTurns(1)}
	c := newTurnConn(context.Background(), h, &counted{})
	for _, step := range []struct {
		name string
		do   func() error
		free int
	}{
		{"write", func() error { _, err := c.Write(make([]byte, partSize)); return err }, 1},
		{"cork", func() error { c.cork(); return nil }, 1},
		{"held write", func() error { _, err := c.Write(make([]byte, 16<<10)); return err }, 0},
		{"uncork", c.uncork, 1},
	} {
		if err := step.do(); err != nil || h.sends.free != step.free {
			t.Errorf("%s: %d permits are free, want %d; error: %v", step.name, h.sends.free, step.free, err)
		}
	}
}

// TestWhoGoesAwayIsNotWrittenTo: what is left of a long answer has nobody to take it.
func TestWhoGoesAwayIsNotWrittenTo(t *testing.T) {
	client, server := connected(t)
	h := &handshakes{sends: newTurns(1)}
	c := newTurnConn(context.Background(), h, server)
	ended := make(chan error)
	go func() {
		for large := make([]byte, 1<<20); ; {
			if n, err := c.Write(large); err != nil || n != len(large) {
				ended <- err
				return
			}
		}
	}()
	if _, err := client.Read(make([]byte, 1)); err != nil {
		t.Error(err)
	}
	_ = client.Close() // what it has not read resets the connection
	var system *os.SyscallError
	if err := <-ended; !errors.As(err, &system) {
		t.Errorf("writing ends with %v", err)
	}
	if n, err := c.Write([]byte("x")); n > 0 || !errors.As(err, &system) {
		t.Errorf("after that %d bytes are written, %v", n, err)
	}
	if h.sends.free != 1 {
		t.Error("it has the turn still")
	}
}
