package slowclients

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

const (
	// kernelBuffer is the size of the send and receive buffers of a link's sockets, in bytes.
	kernelBuffer = 16 << 10
	// segmentSize is the size of TCP segments, as in a network. Segments of the loopback interface
	// are larger than the buffers, so that TCP would wait for its timers.
	segmentSize = 1400
	// chunksPerSecond is the number of parts that a link passes per second.
	chunksPerSecond = 50
)

// link is a TCP proxy of a server that passes a limited number of bytes per second in each
// direction over all its connections.
type link struct {
	addr               string
	target             string
	toServer, toClient rateLimit
	conns              atomic.Int64 // connections that clients have made
}

// newLink starts a link with a rate in bytes per second. It is closed with the test.
func newLink(t testing.TB, target string, rate int) *link {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	small := net.ListenConfig{Control: limitBuffers}
	listener, err := small.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	created := &link{addr: listener.Addr().String(), target: target, toServer: rateLimit{rate: rate}, toClient: rateLimit{rate: rate}}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			created.conns.Add(1)
			running.Go(func() { created.serve(ctx, conn) })
		}
	})
	t.Cleanup(func() {
		cancel()
		_ = listener.Close()
		running.Wait()
	})
	return created
}

// limitBuffers limits the buffers and segments of a socket before it connects or accepts.
func limitBuffers(_, _ string, c syscall.RawConn) error {
	var failed error
	err := c.Control(func(fd uintptr) {
		failed = errors.Join(
			syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, kernelBuffer),
			syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_SNDBUF, kernelBuffer),
			syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_MAXSEG, segmentSize))
	})
	return errors.Join(err, failed)
}

// serve copies between a client and the target at the rate of the link.
func (l *link) serve(ctx context.Context, client net.Conn) {
	defer client.Close()
	dialer := net.Dialer{Control: limitBuffers}
	server, err := dialer.DialContext(ctx, "tcp", l.target)
	if err != nil {
		return // the client sees a closed connection
	}
	defer server.Close()
	stop := context.AfterFunc(ctx, func() {
		_ = client.Close()
		_ = server.Close()
	})
	defer stop()
	var both sync.WaitGroup
	both.Go(func() { l.toServer.copy(server, client) })
	both.Go(func() { l.toClient.copy(client, server) })
	both.Wait()
}

// rateLimit limits what passes in one direction.
type rateLimit struct {
	rate     int // bytes per second
	mu       sync.Mutex
	nextFree time.Time // when the next part may pass
}

// copy copies at the rate until one of the connections is closed. After the end of the input it
// closes only the writing side of the output.
func (p *rateLimit) copy(to, from net.Conn) {
	part := make([]byte, max(512, p.rate/chunksPerSecond))
	for {
		n, err := from.Read(part)
		if n > 0 {
			p.waitFor(n)
			if _, err := to.Write(part[:n]); err != nil {
				_ = from.Close()
				return
			}
		}
		if err != nil {
			if c, ok := to.(*net.TCPConn); ok && errors.Is(err, io.EOF) {
				_ = c.CloseWrite()
			} else {
				_ = to.Close()
			}
			return
		}
	}
}

// waitFor blocks until n more bytes may pass.
func (p *rateLimit) waitFor(n int) {
	p.mu.Lock()
	now := time.Now()
	if p.nextFree.Before(now) {
		p.nextFree = now
	}
	p.nextFree = p.nextFree.Add(time.Duration(n) * time.Second / time.Duration(p.rate))
	until := p.nextFree
	p.mu.Unlock()
	time.Sleep(time.Until(until))
}
