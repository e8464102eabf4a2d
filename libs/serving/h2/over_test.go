package h2_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"

	"binnacle/libs/serving/h2"
)

// TestSettingsAreAnsweredOnce, and their answers not at all.
func TestSettingsAreAnsweredOnce(t *testing.T) {
	c := dialUnread(t, func(http.ResponseWriter, *http.Request) {})
	c.raw(http2.FrameSettings, http2.FlagSettingsAck, 0, "")
	c.must(c.WritePing(false, [8]byte{77}))
	for acks := 0; ; {
		f, err := c.ReadFrame()
		c.must(err)
		if f.Header().Type == http2.FramePing {
			if acks != 1 {
				t.Errorf("settings are answered %d times", acks)
			}
			return
		}
		if s, ok := f.(*http2.SettingsFrame); ok && s.IsAck() {
			acks++
		}
	}
}

// TestWhoLeavesAndGivesUp is left too: nothing has to be written for it.
func TestWhoLeavesAndGivesUp(t *testing.T) {
	stays := func(_ http.ResponseWriter, _ *http.Request, end chan struct{}) { <-end }
	handledInTime(t, true, stays, func(c *timed, end chan struct{}) {
		defer close(end)
		c.raw(http2.FrameHeaders, ends, 1, post)
		synctest.Wait()
		c.s.Shutdown()
		c.hears(event{0, "away"})
		time.Sleep(10 * time.Second)
		c.must(c.WriteRSTStream(1, http2.ErrCodeCancel))
		c.hears(event{11 * time.Second, "end"})
	})
}

// TestHandlersThatStay keep their connection, and it has its time when they end.
func TestHandlersThatStay(t *testing.T) {
	stays := func(w http.ResponseWriter, _ *http.Request, end chan struct{}) {
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(10 * time.Second))
		<-end
	}
	handledInTime(t, true, stays, func(c *timed, end chan struct{}) {
		c.raw(http2.FrameHeaders, ends, 1, post)
		synctest.Wait()
		c.must(c.WriteRSTStream(1, http2.ErrCodeCancel))
		time.Sleep(10*time.Minute + 30*time.Second) // the deadline passes, too
		close(end)
		for got := range c.heard {
			if got.what == "ping" {
				continue
			}
			if want := (event{15*time.Minute + 30*time.Second, "away"}); got != want {
				t.Errorf("%s comes after %v, want %s after %v", got.what, got.after, want.what, want.after)
			}
			break
		}
	})
}

// TestUnreadBodiesThatHaveCome give their room back with their handlers.
func TestUnreadBodiesThatHaveCome(t *testing.T) {
	const size, all = 60_000, 20 << 20 // more than a connection has room for
	turn := make(chan struct{})
	o := dialObedient(t, func(http.ResponseWriter, *http.Request) { <-turn })
	for sent := 0; sent < all; sent += size {
		id := o.open("/", size)
		for left := size; left > 0; {
			o.await(func() bool { return o.may(id, left) > 0 })
			n := o.now(id, left)
			left -= n
			o.send(id, left == 0, make([]byte, n), nil)
		}
		o.must(o.WriteSettings()) // all is read before it
		turn <- struct{}{}
		o.await(func() bool { return o.ended[id] })
	}
}

// TestHandlersThatEndTwice, as who goes on with an answer panics after its end, make no room for two.
func TestHandlersThatEndTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conf := config()
		conf.MaxStreams = 1
		client, server := net.Pipe()
		over, end, began := make(chan struct{}), make(chan struct{}), 0
		go func() {
			defer close(over)
			h2.NewServer(conf).ServeConn(context.Background(), newPlain(server), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if began++; began == 1 {
					w.(lasting).Last(func(over func(any)) {
						over(nil)
						panic(http.ErrAbortHandler)
					})
					return
				}
				<-end
			}))
		}()
		go func() { _, _ = io.Copy(io.Discard, client) }()
		c := &unread{Framer: http2.NewFramer(client, client), Conn: client, t: t}
		_, err := io.WriteString(client, http2.ClientPreface)
		c.must(errors.Join(err, c.WriteSettings()))
		c.raw(http2.FrameHeaders, ends, 1, post)
		synctest.Wait()
		c.raw(http2.FrameHeaders, ends, 3, post)
		synctest.Wait()
		c.must(c.WriteRSTStream(3, http2.ErrCodeCancel))
		c.raw(http2.FrameHeaders, ends, 5, post)
		synctest.Wait()
		if began != 2 {
			t.Errorf("%d handlers have begun, want 2", began)
		}
		close(end)
		synctest.Wait()
		_ = client.Close()
		<-over
	})
}

// TestDeadlinesOfWhoWritesForOthers end his own stream: none of its data are on the wire.
func TestDeadlinesOfWhoWritesForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe()
		over := make(chan struct{})
		go func() {
			defer close(over)
			h2.NewServer(config()).ServeConn(context.Background(), newPlain(server), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(10 * time.Second))
				_ = http.NewResponseController(w).Flush() // which the client does not read in time
				<-r.Context().Done()
			}))
		}()
		c := &unread{Framer: http2.NewFramer(client, client), Conn: client, t: t}
		go func() {
			_, err := io.WriteString(client, http2.ClientPreface)
			c.must(errors.Join(err, c.WriteSettings()))
		}()
		for acked := false; !acked; {
			f, err := c.ReadFrame()
			c.must(err)
			s, ok := f.(*http2.SettingsFrame)
			acked = ok && s.IsAck()
		}
		synctest.Wait()
		c.raw(http2.FrameHeaders, ends, 1, post)
		time.Sleep(20 * time.Second)
		if got := c.hears(); got != "reset 1 INTERNAL_ERROR" {
			t.Errorf("the client hears %s", got)
		}
		_ = client.Close()
		<-over
	})
}

// TestEventsWait for a client that does not read: a mebibyte is sent without waiting for it, and not
// much more.
func TestEventsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const all, part = 1000, 10_000
		client, server := net.Pipe()
		over, sent := make(chan struct{}), atomic.Int64{}
		go func() {
			defer close(over)
			h2.NewServer(config()).ServeConn(context.Background(), newPlain(server), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				event := make([]byte, part)
				for range all {
					if _, err := w.Write(event); err != nil || http.NewResponseController(w).Flush() != nil {
						return
					}
					sent.Add(part)
				}
			}))
		}()
		c := &unread{Framer: http2.NewFramer(client, client), Conn: client, t: t}
		go func() { // until the first event
			buffer := make([]byte, 2000)
			_, _ = io.ReadFull(client, buffer)
		}()
		_, err := io.WriteString(client, http2.ClientPreface)
		const most = 1 << 30
		c.must(errors.Join(err, c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: most}), c.WriteWindowUpdate(0, most)))
		c.raw(http2.FrameHeaders, ends, 1, post)
		synctest.Wait()
		c.raw(http2.FrameHeaders, ends, 3, post) // one of both may be writing
		synctest.Wait()
		if n := sent.Load(); n < 1<<20 || n > 2<<20 {
			t.Errorf("%d bytes are pending", n)
		}
		_ = client.Close()
		<-over
	})
}

// TestWhoLeavesJustNow has time to read that he is to, whatever else is looked at meanwhile.
func TestWhoLeavesJustNow(t *testing.T) {
	inTime(t, true, func(c *timed, _ chan struct{}) {
		time.Sleep(config().WriteTimeout/2 - 100*time.Millisecond) // then its deadline is looked at
		c.s.Shutdown()
		c.hears(event{29 * time.Second, "away"})
		time.Sleep(500 * time.Millisecond)
		synctest.Wait()
		if len(c.heard) > 0 {
			t.Errorf("then comes %v", <-c.heard)
		}
		c.hears(event{30 * time.Second, "end"})
	})
}

// TestSlowClientsHaveTheirAnswers, although nothing is left to do for their connection but to write.
func TestSlowClientsHaveTheirAnswers(t *testing.T) {
	const answers, size = 60, 16_000
	synctest.Test(t, func(t *testing.T) {
		conf := config()
		conf.IdleTimeout = 5 * time.Minute
		client, server := net.Pipe()
		over := make(chan struct{})
		go func() {
			defer close(over)
			h2.NewServer(conf).ServeConn(context.Background(), newPlain(server), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_, _ = w.Write(make([]byte, size))
			}))
		}()
		c := &unread{Framer: http2.NewFramer(client, client), Conn: client, t: t}
		_, err := io.WriteString(client, http2.ClientPreface)
		c.must(errors.Join(err, c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 30}), c.WriteWindowUpdate(0, 1<<30)))
		for i := range uint32(answers) {
			c.raw(http2.FrameHeaders, ends, 2*i+1, post)
		}
		synctest.Wait()
		for whole := 0; whole < answers; {
			f, err := c.ReadFrame()
			if err != nil {
				t.Errorf("%d answers have come, then %v", whole, err)
				break
			}
			if d, ok := f.(*http2.DataFrame); ok && d.StreamEnded() {
				if whole++; whole == answers {
					break
				}
				time.Sleep(10 * time.Second)
				c.raw(99, 0, 0, "") // it lives
			}
		}
		_ = client.Close()
		<-over
	})
}
