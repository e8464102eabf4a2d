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

// echo is a server that answers each line with itself, and says so in lines.
func echo(t *testing.T) (addr string, lines <-chan string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	heard := make(chan string, 16)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				for r := bufio.NewReader(c); ; {
					line, err := r.ReadString('\n')
					if err != nil {
						return
					}
					heard <- line
					if _, err := io.WriteString(c, line); err != nil {
						return
					}
				}
			}()
		}
	}()
	return l.Addr().String(), heard
}

type client struct {
	net.Conn
	r *bufio.Reader
	t *testing.T
}

func dial(t *testing.T, p *Proxy) *client {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return &client{c, bufio.NewReader(c), t}
}

func (c *client) say(line string) {
	c.t.Helper()
	if _, err := io.WriteString(c, line); err != nil {
		c.t.Fatal(err)
	}
}

func (c *client) hear(line string) {
	c.t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		c.t.Fatal(err)
	}
	if got, err := c.r.ReadString('\n'); got != line || err != nil {
		c.t.Fatalf("heard %q, %v", got, err)
	}
}

// silent checks that nothing is heard for a moment.
func (c *client) silent() {
	c.t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		c.t.Fatal(err)
	}
	if _, err := c.r.Peek(1); !errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Fatalf("heard something, or the end: %v", err)
	}
}

func (c *client) ended() {
	c.t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		c.t.Fatal(err)
	}
	if _, err := c.r.ReadByte(); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Fatalf("the connection has not ended: %v", err)
	}
}

func TestProxyCuts(t *testing.T) {
	addr, _ := echo(t)
	p := StartProxy(t, addr)
	c := dial(t, p)
	c.say("one\n")
	c.hear("one\n")
	p.Set(Cut)
	c.ended()
	dial(t, p).ended()
	p.Set(Pass)
	c = dial(t, p)
	c.say("two\n")
	c.hear("two\n")
	p.Reset()
	c.ended()
	dial(t, p).say("three\n")
}

func TestProxyStalls(t *testing.T) {
	for _, how := range []Traffic{Stall, StallAnswers} {
		addr, heard := echo(t)
		p := StartProxy(t, addr)
		c := dial(t, p)
		c.say("one\n")
		c.hear("one\n")
		<-heard
		p.Set(how)
		c.say("two\n")
		if how == StallAnswers {
			<-heard
		}
		c.silent()
		if len(heard) > 0 {
			t.Error("the server heard what was held back")
		}
		p.Set(Pass)
		c.hear("two\n")
		p.Set(how)
		c.say("three\n")
		p.Reset()
		c.ended()
	}
}
