package h2_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"

	"binnacle/libs/serving/h2"
)

// event is what comes of a server, and when, in whole seconds.
type event struct {
	after time.Duration
	what  string
}

// timed is a client in a time of its own, which hears all that comes.
type timed struct {
	*unread
	s     *h2.Server
	begin time.Time
	heard chan event
	acks  bool // it gives signs of life
}

// inTime has a test talk to a server, of requests that last until end is closed.
func inTime(t *testing.T, acks bool, test func(c *timed, end chan struct{})) {
	t.Helper()
	handledInTime(t, acks, func(_ http.ResponseWriter, r *http.Request, end chan struct{}) {
		select {
		case <-end:
		case <-r.Context().Done():
		}
	}, test)
}

// handledInTime is inTime with another handler.
func handledInTime(t *testing.T, acks bool, handler func(w http.ResponseWriter, r *http.Request, end chan struct{}), test func(c *timed, end chan struct{})) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		conf := config()
		conf.IdleTimeout, conf.PingAfter, conf.PingTimeout = 5*time.Minute, time.Minute, 10*time.Second
		client, server := net.Pipe()
		over, end := make(chan struct{}), make(chan struct{})
		c := &timed{&unread{Framer: http2.NewFramer(client, client), Conn: client, t: t}, h2.NewServer(conf), time.Now(), make(chan event, 1000), acks}
		go func() {
			defer close(over)
			c.s.ServeConn(context.Background(), newPlain(server), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handler(w, r, end) }))
		}()
		go c.listen()
		_, err := io.WriteString(client, http2.ClientPreface)
		c.must(errors.Join(err, c.WriteSettings()))
		synctest.Wait()
		test(c, end)
		_ = client.Close()
		<-over
	})
}

func (c *timed) listen() {
	defer close(c.heard)
	signs := http2.NewFramer(c.Conn, nil) // beside those of who asks
	tell := func(what string) { c.heard <- event{time.Since(c.begin).Truncate(time.Second), what} }
	for {
		f, err := c.ReadFrame()
		if err != nil {
			tell("end")
			return
		}
		switch f := f.(type) {
		case *http2.PingFrame:
			tell("ping")
			if c.acks {
				time.Sleep(time.Millisecond) // no wire is as fast as ours
				if signs.WritePing(true, f.Data) != nil {
					return
				}
			}
		case *http2.GoAwayFrame:
			tell("away")
		case *http2.HeadersFrame:
			tell("answer")
		case *http2.RSTStreamFrame:
			tell("reset")
		}
	}
}

// hears has the next things be these.
func (c *timed) hears(want ...event) {
	c.t.Helper()
	for _, w := range want {
		if got := <-c.heard; got != w {
			c.t.Errorf("%s comes after %v, want %s after %v", got.what, got.after, w.what, w.after)
		}
	}
}

const post, ends = "\x83\x87\x84\x41\x01a", http2.FlagHeadersEndStream | http2.FlagHeadersEndHeaders

// TestSilentClients are asked for a sign of life, and left when none comes, whether they have asked for
// something or not.
func TestSilentClients(t *testing.T) {
	for name, asks := range map[string]bool{"that ask": true, "that do not": false} {
		t.Run(name, func(t *testing.T) {
			inTime(t, false, func(c *timed, _ chan struct{}) {
				if asks {
					c.raw(http2.FrameHeaders, ends, 1, post)
				}
				c.hears(event{time.Minute, "ping"}, event{70 * time.Second, "end"})
			})
		})
	}
}

// TestClientsThatLive are asked again and again, and what they say by themselves counts too.
func TestClientsThatLive(t *testing.T) {
	inTime(t, true, func(c *timed, end chan struct{}) {
		c.raw(http2.FrameHeaders, ends, 1, post)
		for i := range time.Duration(20) { // far longer than without a request
			c.hears(event{(i + 1) * time.Minute, "ping"})
		}
		time.Sleep(time.Second)
		synctest.Wait()
		begin := time.Since(c.begin).Truncate(time.Second)
		c.raw(99, 0, 0, "")
		c.hears(event{begin + time.Minute, "ping"})
		close(end)
		c.hears(event{begin + time.Minute, "answer"})
	})
}

// TestConnectionsWithoutRequests are closed after a while, from the last answer on.
func TestConnectionsWithoutRequests(t *testing.T) {
	inTime(t, true, func(c *timed, end chan struct{}) {
		time.Sleep(30 * time.Second)
		c.raw(http2.FrameHeaders, ends, 1, post)
		time.Sleep(10 * time.Second)
		close(end)
		c.hears(event{40 * time.Second, "answer"})
		for got := range c.heard {
			if got.what == "ping" {
				continue
			}
			if want := (event{40*time.Second + 5*time.Minute, "away"}); got != want {
				t.Errorf("%s comes after %v, want %s after %v", got.what, got.after, want.what, want.after)
			}
			break
		}
		c.hears(event{41*time.Second + 5*time.Minute, "end"})
	})
}

// TestWhoIsToldToLeave is left when all is answered, and not before.
func TestWhoIsToldToLeave(t *testing.T) {
	inTime(t, true, func(c *timed, end chan struct{}) {
		c.raw(http2.FrameHeaders, ends, 1, post)
		synctest.Wait()
		c.s.Shutdown()
		c.s.Shutdown()
		c.hears(event{0, "away"})
		c.raw(http2.FrameHeaders, ends, 3, post) // which nobody answers
		time.Sleep(30 * time.Second)
		close(end)
		c.hears(event{30 * time.Second, "answer"}, event{31 * time.Second, "end"})
	})
}

// TestWhoComesLate to a server that ends is told to leave at once.
func TestWhoComesLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := h2.NewServer(config())
		s.Shutdown()
		client, server := net.Pipe()
		over := make(chan struct{})
		c := &timed{&unread{Framer: http2.NewFramer(client, client), Conn: client, t: t}, s, time.Now(), make(chan event, 10), true}
		go func() {
			defer close(over)
			s.ServeConn(context.Background(), newPlain(server), http.NotFoundHandler())
		}()
		go c.listen()
		_, err := io.WriteString(client, http2.ClientPreface)
		c.must(errors.Join(err, c.WriteSettings()))
		c.hears(event{0, "away"}, event{time.Second, "end"})
		_ = client.Close()
		<-over
	})
}

// TestWhoSaysNothing at all is left, and who begins with something else.
func TestWhoSaysNothing(t *testing.T) {
	for name, text := range map[string]string{"nothing": "", "half of it": http2.ClientPreface[:5], "no settings": http2.ClientPreface} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, server := net.Pipe()
				go func() { _, _ = io.WriteString(client, text) }()
				go func() { _, _ = io.Copy(io.Discard, client) }()
				begin := time.Now()
				h2.NewServer(config()).ServeConn(t.Context(), newPlain(server), http.NotFoundHandler())
				if took := time.Since(begin); took != 10*time.Second {
					t.Errorf("it is left after %v", took)
				}
				_ = client.Close()
			})
		})
	}
}
