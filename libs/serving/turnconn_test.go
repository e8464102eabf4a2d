package serving

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"testing"
	"time"
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

// TestWhoDoesNotReadHasNoTurn: there is one turn, and many write to clients that do not
// read; one who reads gets all.
func TestWhoDoesNotReadHasNoTurn(t *testing.T) {
	if !ownWrites {
		t.Skip("the system's own writes are not known here")
	}
	h := &handshakes{sends: newTurns(1)}
	pair := func() (*turnConn, net.Conn) {
		client, server := connected(t)
		return newTurnConn(context.Background(), h, server), client
	}
	large := bytes.Repeat([]byte("0123456789abcdef"), 2<<20) // more than buffers of the system
	const silent = 4
	ended := make(chan error, silent)
	var conns []*turnConn
	for range silent {
		c, client := pair()
		defer client.Close()
		conns = append(conns, c)
		go func() {
			_, err := c.Write(large)
			ended <- err
		}()
	}
	c, client := pair()
	defer client.Close()
	written := make(chan struct{})
	go func() {
		defer close(written)
		_, _ = c.Write(large)
		_ = c.Close()
	}()
	var got bytes.Buffer
	if _, err := got.ReadFrom(client); err != nil || !bytes.Equal(got.Bytes(), large) {
		t.Errorf("%d bytes of %d came, %v", got.Len(), len(large), err)
	}
	<-written
	for _, c := range conns {
		_ = c.Close()
	}
	for range silent {
		if err := <-ended; err == nil {
			t.Error("a client that does not read took everything")
		}
	}
	if h.sends.free != 1 || len(h.sends.order) > 0 {
		t.Errorf("at the end %d turns are free, %v wait", h.sends.free, h.sends.order)
	}
}

// TestWhoIsSlowWithTheRestHasNoTurn: what is left of a long answer may be little, and waits
// for its client too.
func TestWhoIsSlowWithTheRestHasNoTurn(t *testing.T) {
	client, server := connected(t)
	h := &handshakes{sends: newTurns(1)}
	c := newTurnConn(context.Background(), h, server)
	if c.raw == nil {
		t.Skip("the system's own writes are not known here")
	}
	fill := make([]byte, 64<<10)
	c.keep(false)
	ended := make(chan error, 1)
	go func() {
		defer c.brief()
		// What the client's side takes on comes later than the system says that it takes no more.
		for err := error(nil); ; {
			if err == nil {
				err = c.raw.Write(func(fd uintptr) bool {
					for size := len(fill); size > 0; { // until not a byte more is taken
						if _, err := syscallWrite(fd, fill[:size]); err != nil {
							size /= 2
						}
					}
					return true
				})
			}
			if err == nil {
				c.cork()
				_, err = c.Write(make([]byte, 1<<10))
			}
			if err == nil {
				err = c.uncork()
			}
			if err != nil {
				ended <- err
				return
			}
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := h.sends.enter(ctx, remote(client)); err != nil {
		t.Error("who does not read keeps the turn")
	} else {
		h.sends.leave()
	}
	_ = server.Close()
	if err := <-ended; err == nil {
		t.Error("a client that does not read took everything")
	}
}

// TestWhoGoesAwayIsNotWrittenTo: what is left of a long answer has nobody to take it.
func TestWhoGoesAwayIsNotWrittenTo(t *testing.T) {
	if !ownWrites {
		t.Skip("the system's own writes are not known here")
	}
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
