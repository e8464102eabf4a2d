package conns

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"slices"
	"testing"

	"binnacle/libs/limit"
)

// recordingConn is a connection that records each write.
type recordingConn struct {
	net.Conn
	writes [][]byte
	err    error
}

func (c *recordingConn) Write(p []byte) (int, error) {
	c.writes = append(c.writes, bytes.Clone(p))
	return len(p), c.err
}

func (c *recordingConn) RemoteAddr() net.Addr { return &net.TCPAddr{} }

// tcpPair returns both ends of a TCP connection.
func tcpPair(t *testing.T) (client, server net.Conn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if client, err = net.Dial("tcp", listener.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if server, err = listener.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(); server.Close() })
	return client, server
}

// TestCorkedWritesLeaveTogether checks that writes to a corked connection leave in order in one
// write.
func TestCorkedWritesLeaveTogether(t *testing.T) {
	below := &recordingConn{}
	conn := newConn(context.Background(), &Listener{sendLimiter: limit.New[string](limit.Options{Size: 1})}, below)
	write := func(s string) {
		t.Helper()
		if n, err := conn.Write([]byte(s)); n != len(s) || err != nil {
			t.Fatalf("got %d bytes written, %v, want %d", n, err, len(s))
		}
	}
	uncork := func() {
		t.Helper()
		if err := conn.Uncork(); err != nil {
			t.Fatal(err)
		}
	}
	write("a")
	conn.Cork()
	uncork() // nothing was written
	conn.Cork()
	write("b")
	write("c")
	write("d")
	uncork()
	write("e")
	conn.Cork()
	write("f")
	uncork()
	if got := string(bytes.Join(below.writes, []byte(" "))); got != "a bcd e f" {
		t.Errorf("writes = %s, want \"a bcd e f\"", got)
	}

	gone := errors.New("gone")
	below.err = gone
	conn.Cork()
	write("g")
	if err := conn.Uncork(); !errors.Is(err, gone) {
		t.Errorf("uncork() after a failed write = %v, want error %v", err, gone)
	}
	below.err = nil
	if _, err := conn.Write([]byte("h")); !errors.Is(err, gone) {
		t.Errorf("Write() after a failed write = %v, want error %v", err, gone)
	}
	if err := conn.Uncork(); !errors.Is(err, gone) {
		t.Errorf("uncork() without held bytes = %v, want error %v", err, gone)
	}
}

// TestCorkedBytesAreLimited checks that held bytes are limited, although clients choose the frame
// size.
func TestCorkedBytesAreLimited(t *testing.T) {
	below := &recordingConn{}
	conn := newConn(context.Background(), &Listener{sendLimiter: limit.New[string](limit.Options{Size: 1})}, below)
	record, budget := bytes.Repeat([]byte("0123456789abcdef"), 1<<10), 0
	conn.Cork()
	for budget < 1<<20 {
		if _, err := conn.Write(record); err != nil {
			t.Fatal(err)
		}
		budget += len(record)
		if cap(conn.buffered) > maxCorked {
			t.Fatalf("after %d bytes, the buffer has %d, want at most %v", budget, cap(conn.buffered), maxCorked)
		}
	}
	if err := conn.Uncork(); err != nil {
		t.Fatal(err)
	}
	if got := bytes.Join(below.writes, nil); !bytes.Equal(got, bytes.Repeat(record, budget/len(record))) {
		t.Errorf("got %d bytes written, want %d in records", len(got), budget)
	}
	gone := errors.New("gone")
	conn.Cork()
	for below.err = gone; ; {
		if _, err := conn.Write(record); err != nil {
			if !errors.Is(err, gone) {
				t.Error(err)
			}
			break
		}
	}
	below.err = nil
	writes := len(below.writes)
	if err := conn.Uncork(); !errors.Is(err, gone) || len(below.writes) != writes {
		t.Errorf("Uncork after a failed write: got %v, %d more writes, want %v and none", err, len(below.writes)-writes, gone)
	}
}

// sendLarge writes p as large parts of a response are written.
func sendLarge(conn *Conn, p []byte) error {
	for part := range slices.Chunk(p, 64<<10) {
		conn.Cork()
		for record := range slices.Chunk(part, 16<<10) {
			if _, err := conn.Write(record); err != nil {
				break // uncork returns it
			}
		}
		if err := conn.Uncork(); err != nil {
			return err
		}
	}
	return nil
}

// TestBlockedWritesHoldNoPermit checks that with one permit, one client gets all of a large
// response while others read nothing of theirs.
func TestBlockedWritesHoldNoPermit(t *testing.T) {
	listener := &Listener{sendLimiter: limit.New[string](limit.Options{Size: 1})}
	pair := func() (*Conn, net.Conn) {
		client, server := tcpPair(t)
		return newConn(context.Background(), listener, server), client
	}
	large := bytes.Repeat([]byte("0123456789abcdef"), 2<<20) // more than the kernel buffers
	const silent = 4
	ended := make(chan error, silent)
	var conns []*Conn
	for range silent {
		conn, _ := pair()
		conns = append(conns, conn)
		go func() { ended <- sendLarge(conn, large) }()
	}
	conn, client := pair()
	written := make(chan struct{})
	go func() {
		defer close(written)
		_ = sendLarge(conn, large)
		_ = conn.Close()
	}()
	var got bytes.Buffer
	if _, err := got.ReadFrom(client); err != nil || !bytes.Equal(got.Bytes(), large) {
		t.Errorf("got %d bytes, %v, want all %d", got.Len(), err, len(large))
	}
	<-written
	for _, conn := range conns {
		_ = conn.Close()
	}
	for range silent {
		if err := <-ended; err == nil {
			t.Error("write to a client that does not read = nil, want an error")
		}
	}
	if n := listener.sendLimiter.InUse(); n != 0 {
		t.Errorf("%d permits are in use at the end, want 0", n)
	}
}

// TestCorkedWritesHoldPermit checks that a permit is held from the first held byte until the bytes
// are written.
func TestCorkedWritesHoldPermit(t *testing.T) {
	listener := &Listener{sendLimiter: limit.New[string](limit.Options{Size: 1})}
	conn := newConn(context.Background(), listener, &recordingConn{})
	for _, step := range []struct {
		name   string
		writes func() error
		free   int
	}{
		{name: "write", writes: func() error { _, err := conn.Write(make([]byte, partSize)); return err }, free: 1},
		{name: "cork", writes: func() error { conn.Cork(); return nil }, free: 1},
		{name: "held write", writes: func() error { _, err := conn.Write(make([]byte, 16<<10)); return err }, free: 0},
		{name: "uncork", writes: conn.Uncork, free: 1},
	} {
		if err := step.writes(); err != nil || 1-listener.sendLimiter.InUse() != step.free {
			t.Errorf("%s: %d permits are free, want %d; error: %v", step.name, 1-listener.sendLimiter.InUse(), step.free, err)
		}
	}
}

// TestWriteFailsAfterClientCloses checks that writes to a closed connection fail.
func TestWriteFailsAfterClientCloses(t *testing.T) {
	client, server := tcpPair(t)
	listener := &Listener{sendLimiter: limit.New[string](limit.Options{Size: 1})}
	conn := newConn(context.Background(), listener, server)
	ended := make(chan error)
	go func() {
		for large := make([]byte, 1<<20); ; {
			if n, err := conn.Write(large); err != nil || n != len(large) {
				ended <- err
				return
			}
		}
	}()
	if _, err := client.Read(make([]byte, 1)); err != nil {
		t.Error(err)
	}
	_ = client.Close() // unread bytes reset the connection
	var system *os.SyscallError
	if err := <-ended; !errors.As(err, &system) {
		t.Errorf("Write() = %v, want a system error", err)
	}
	if n, err := conn.Write([]byte("x")); n > 0 || !errors.As(err, &system) {
		t.Errorf("next Write() = %d, %v, want 0 and a system error", n, err)
	}
	if listener.sendLimiter.InUse() != 0 {
		t.Errorf("after the connection failed: %d permits are held, want 0", listener.sendLimiter.InUse())
	}
}

// TestBelowTLSFindsOnlyAcceptedConnections checks that only a connection that a Listener accepted
// is found below TLS.
func TestBelowTLSFindsOnlyAcceptedConnections(t *testing.T) {
	_, server := tcpPair(t)
	below := newConn(t.Context(), &Listener{}, server)
	for name, tc := range map[string]struct {
		conn net.Conn
		want *Conn
	}{
		"TLS of the server":           {conn: tls.Server(below, nil), want: below},
		"TLS over another connection": {conn: tls.Server(server, nil)},
		"without TLS":                 {conn: below},
	} {
		if got := BelowTLS(tc.conn); got != tc.want {
			t.Errorf("%s: got %v, want %v", name, got, tc.want)
		}
	}
}
