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

// event is a frame of the server and the time of its arrival in whole seconds.
type event struct {
	after time.Duration
	what  string
}

// timedClient is a client in a synctest bubble that records events.
type timedClient struct {
	*rawClient
	s         *h2.Server
	start     time.Time
	events    chan event
	acksPings bool // acknowledges PINGs
}

// testTimed runs test with a server whose handlers return when end is closed or the request is
// canceled.
func testTimed(t *testing.T, acks bool, test func(c *timedClient, end chan struct{})) {
	t.Helper()
	testTimedHandler(t, acks, func(_ http.ResponseWriter, r *http.Request, end chan struct{}) {
		select {
		case <-end:
		case <-r.Context().Done():
		}
	}, test)
}

// testTimedHandler runs a test like testTimed, with another handler.
func testTimedHandler(t *testing.T, acks bool,
	handler func(w http.ResponseWriter, r *http.Request, end chan struct{}), test func(c *timedClient, end chan struct{})) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		conf := config()
		conf.IdleTimeout = 5 * time.Minute
		conf.PingAfter = time.Minute
		conf.PingTimeout = 10 * time.Second
		client, server := net.Pipe()
		over, end := make(chan struct{}), make(chan struct{})
		c := &timedClient{&rawClient{Framer: http2.NewFramer(client, client), Conn: client, t: t}, h2.NewServer(conf),
			time.Now(), make(chan event, 1000), acks}
		go func() {
			defer close(over)
			c.s.ServeConn(context.Background(), newFakeWire(server),
				http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handler(w, r, end) }))
		}()
		go c.readEvents()
		_, err := io.WriteString(client, http2.ClientPreface)
		c.requireNoError(errors.Join(err, c.WriteSettings()))
		synctest.Wait()
		test(c, end)
		_ = client.Close()
		<-over
	})
}

// readEvents records the times of PING and GOAWAY frames and of the end, and acknowledges PINGs if
// acksPings is set.
func (c *timedClient) readEvents() {
	defer close(c.events)
	signs := http2.NewFramer(c.Conn, nil) // a second framer, because the first one writes requests
	record := func(what string) { c.events <- event{time.Since(c.start).Truncate(time.Second), what} }
	for {
		frame, err := c.ReadFrame()
		if err != nil {
			record("end")
			return
		}
		switch f := frame.(type) {
		case *http2.PingFrame:
			record("ping")
			if c.acksPings {
				time.Sleep(time.Millisecond) // simulates latency
				if signs.WritePing(true, f.Data) != nil {
					return
				}
			}
		case *http2.GoAwayFrame:
			record("away")
		case *http2.HeadersFrame:
			record("response")
		case *http2.RSTStreamFrame:
			record("reset")
		}
	}
}

// expect compares the next events.
func (c *timedClient) expect(want ...event) {
	c.t.Helper()
	for _, w := range want {
		if got := <-c.events; got != w {
			c.t.Errorf("got %s after %v, want %s after %v", got.what, got.after, w.what, w.after)
		}
	}
}

const postRequest, endFlags = "\x83\x87\x84\x41\x01a", http2.FlagHeadersEndStream | http2.FlagHeadersEndHeaders

// TestSilentClientIsClosed checks that a silent client gets a PING and is closed if it does not
// acknowledge the PING, with and without requests.
func TestSilentClientIsClosed(t *testing.T) {
	for name, hasRequest := range map[string]bool{"with a request": true, "without a request": false} {
		t.Run(name, func(t *testing.T) {
			testTimed(t, false, func(c *timedClient, _ chan struct{}) {
				if hasRequest {
					c.writeFrame(http2.FrameHeaders, endFlags, 1, postRequest)
				}
				c.expect(event{time.Minute, "ping"}, event{70 * time.Second, "end"})
			})
		})
	}
}

// TestLiveClientIsPinged checks that a client that acknowledges a PING is pinged again, and that
// other frames count as liveness.
func TestLiveClientIsPinged(t *testing.T) {
	testTimed(t, true, func(c *timedClient, end chan struct{}) {
		c.writeFrame(http2.FrameHeaders, endFlags, 1, postRequest)
		for i := range time.Duration(20) { // far longer than the idle timeout
			c.expect(event{(i + 1) * time.Minute, "ping"})
		}
		time.Sleep(time.Second)
		synctest.Wait()
		start := time.Since(c.start).Truncate(time.Second)
		c.writeFrame(99, 0, 0, "")
		c.expect(event{start + time.Minute, "ping"})
		close(end)
		c.expect(event{start + time.Minute, "response"})
	})
}

// TestIdleConnectionIsClosed checks that the idle timeout starts with the end of the last response.
func TestIdleConnectionIsClosed(t *testing.T) {
	testTimed(t, true, func(client *timedClient, end chan struct{}) {
		time.Sleep(30 * time.Second)
		client.writeFrame(http2.FrameHeaders, endFlags, 1, postRequest)
		time.Sleep(10 * time.Second)
		close(end)
		client.expect(event{40 * time.Second, "response"})
		for got := range client.events {
			if got.what == "ping" {
				continue
			}
			if want := (event{40*time.Second + 5*time.Minute, "away"}); got != want {
				t.Errorf("got %s after %v, want %s after %v", got.what, got.after, want.what, want.after)
			}
			break
		}
		client.expect(event{41*time.Second + 5*time.Minute, "end"})
	})
}

// TestShutdownClosesAfterResponses checks that a connection closes after a shutdown once all
// responses were sent.
func TestShutdownClosesAfterResponses(t *testing.T) {
	testTimed(t, true, func(c *timedClient, end chan struct{}) {
		c.writeFrame(http2.FrameHeaders, endFlags, 1, postRequest)
		synctest.Wait()
		c.s.Shutdown()
		c.s.Shutdown()
		c.expect(event{0, "away"})
		c.writeFrame(http2.FrameHeaders, endFlags, 3, postRequest) // ignored after the GOAWAY
		time.Sleep(30 * time.Second)
		close(end)
		c.expect(event{30 * time.Second, "response"}, event{31 * time.Second, "end"})
	})
}

// TestNewConnectionAfterShutdownGetsGoAway checks that a connection that starts during a shutdown
// gets a GOAWAY.
func TestNewConnectionAfterShutdownGetsGoAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := h2.NewServer(config())
		s.Shutdown()
		client, server := net.Pipe()
		over := make(chan struct{})
		c := &timedClient{&rawClient{Framer: http2.NewFramer(client, client), Conn: client, t: t}, s, time.Now(),
			make(chan event, 10), true}
		go func() {
			defer close(over)
			s.ServeConn(context.Background(), newFakeWire(server), http.NotFoundHandler())
		}()
		go c.readEvents()
		_, err := io.WriteString(client, http2.ClientPreface)
		c.requireNoError(errors.Join(err, c.WriteSettings()))
		c.expect(event{0, "away"}, event{time.Second, "end"})
		_ = client.Close()
		<-over
	})
}

// TestMissingPrefaceTimesOut checks that a client must send its preface and SETTINGS in time.
func TestMissingPrefaceTimesOut(t *testing.T) {
	for name, text := range map[string]string{
		"nothing":     "",
		"half of it":  http2.ClientPreface[:5],
		"no settings": http2.ClientPreface,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, server := net.Pipe()
				go func() { _, _ = io.WriteString(client, text) }()
				go func() { _, _ = io.Copy(io.Discard, client) }()
				start := time.Now()
				h2.NewServer(config()).ServeConn(t.Context(), newFakeWire(server), http.NotFoundHandler())
				if elapsed := time.Since(start); elapsed != 10*time.Second {
					t.Errorf("the connection ended after %v, want 10s", elapsed)
				}
				_ = client.Close()
			})
		})
	}
}
