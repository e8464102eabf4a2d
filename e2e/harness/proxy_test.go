package harness

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"
)

// echo starts a server that returns each line that it receives, and sends it to the channel.
func echo(t *testing.T) (addr string, lines <-chan string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	received := make(chan string, 16)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				for r := bufio.NewReader(conn); ; {
					line, err := r.ReadString('\n')
					if err != nil {
						return
					}
					received <- line
					if _, err := io.WriteString(conn, line); err != nil {
						return
					}
				}
			}()
		}
	}()
	return listener.Addr().String(), received
}

type client struct {
	net.Conn
	r *bufio.Reader
	t *testing.T
}

func dial(t *testing.T, p *Proxy) *client {
	t.Helper()
	conn, err := net.Dial("tcp", p.Addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &client{conn, bufio.NewReader(conn), t}
}

// send sends a line.
func (c *client) send(line string) {
	c.t.Helper()
	if _, err := io.WriteString(c, line); err != nil {
		c.t.Fatal(err)
	}
}

// expect reads a line and compares it.
func (c *client) expect(line string) {
	c.t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		c.t.Fatal(err)
	}
	if got, err := c.r.ReadString('\n'); got != line || err != nil {
		c.t.Fatalf("got %q, %v, want %q", got, err, line)
	}
}

// expectSilence checks that no data arrives within 50 ms.
func (c *client) expectSilence() {
	c.t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		c.t.Fatal(err)
	}
	if _, err := c.r.Peek(1); !errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Fatalf("got data or the end of the connection, want silence: %v", err)
	}
}

// expectClosed checks that the connection is closed.
func (c *client) expectClosed() {
	c.t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		c.t.Fatal(err)
	}
	if _, err := c.r.ReadByte(); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Fatalf("read: got %v, want the end of the connection", err)
	}
}

// TestProxyCutClosesConnections checks that Cut closes existing and new connections, and that Reset
// closes only existing ones.
func TestProxyCutClosesConnections(t *testing.T) {
	addr, _ := echo(t)
	proxy := StartProxy(t, addr)
	client := dial(t, proxy)
	client.send("one\n")
	client.expect("one\n")
	proxy.Set(Cut)
	client.expectClosed()
	dial(t, proxy).expectClosed()
	proxy.Set(Pass)
	client = dial(t, proxy)
	client.send("two\n")
	client.expect("two\n")
	proxy.Reset()
	client.expectClosed()
	dial(t, proxy).send("three\n")
}

// TestProxyStallHoldsDataBack checks that stalled connections stay open and deliver their data
// later, or are closed by Reset.
func TestProxyStallHoldsDataBack(t *testing.T) {
	for _, traffic := range []Traffic{Stall, StallResponses} {
		addr, received := echo(t)
		proxy := StartProxy(t, addr)
		client := dial(t, proxy)
		client.send("one\n")
		client.expect("one\n")
		<-received
		proxy.Set(traffic)
		client.send("two\n")
		if traffic == StallResponses {
			<-received // requests still reach the server
		}
		client.expectSilence()
		if len(received) > 0 {
			t.Errorf("traffic %v: the server received %q, want it held back", traffic, <-received)
		}
		proxy.Set(Pass)
		client.expect("two\n")
		proxy.Set(traffic)
		client.send("three\n")
		proxy.Reset()
		client.expectClosed()
	}
}
