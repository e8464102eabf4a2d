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

// TestSettingsAreAcknowledgedOnce checks that SETTINGS are acknowledged once, and acknowledgments
// not at all.
func TestSettingsAreAcknowledgedOnce(t *testing.T) {
	rawClient := dialRaw(t, func(http.ResponseWriter, *http.Request) {})
	rawClient.writeFrame(http2.FrameSettings, http2.FlagSettingsAck, 0, "")
	rawClient.requireNoError(rawClient.WritePing(false, [8]byte{77}))
	for acks := 0; ; {
		frame, err := rawClient.ReadFrame()
		rawClient.requireNoError(err)
		if frame.Header().Type == http2.FramePing {
			if acks != 1 {
				t.Errorf("got %d SETTINGS acknowledgments, want 1", acks)
			}
			return
		}
		if s, ok := frame.(*http2.SettingsFrame); ok && s.IsAck() {
			acks++
		}
	}
}

// TestConnectionClosesAfterResetOfLastStream checks that a connection closes after a GOAWAY when
// the client resets its last stream.
func TestConnectionClosesAfterResetOfLastStream(t *testing.T) {
	stays := func(_ http.ResponseWriter, _ *http.Request, end chan struct{}) { <-end }
	testTimedHandler(t, true, stays, func(c *timedClient, end chan struct{}) {
		defer close(end)
		c.writeFrame(http2.FrameHeaders, endFlags, 1, postRequest)
		synctest.Wait()
		c.s.Shutdown()
		c.expect(event{0, "away"})
		time.Sleep(10 * time.Second)
		c.requireNoError(c.WriteRSTStream(1, http2.ErrCodeCancel))
		c.expect(event{11 * time.Second, "end"})
	})
}

// TestRunningHandlerKeepsConnection checks that a running handler of a reset stream keeps the
// connection open, and that the idle timeout starts when it returns.
func TestRunningHandlerKeepsConnection(t *testing.T) {
	stays := func(w http.ResponseWriter, _ *http.Request, end chan struct{}) {
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(10 * time.Second))
		<-end
	}
	testTimedHandler(t, true, stays, func(c *timedClient, end chan struct{}) {
		c.writeFrame(http2.FrameHeaders, endFlags, 1, postRequest)
		synctest.Wait()
		c.requireNoError(c.WriteRSTStream(1, http2.ErrCodeCancel))
		time.Sleep(10*time.Minute + 30*time.Second) // longer than the deadline
		close(end)
		for got := range c.events {
			if got.what == "ping" {
				continue
			}
			if want := (event{15*time.Minute + 30*time.Second, "away"}); got != want {
				t.Errorf("got %s after %v, want %s after %v", got.what, got.after, want.what, want.after)
			}
			break
		}
	})
}

// TestUnreadBodiesAreRefunded checks that unread data of a body returns to the window when the
// handler returns.
func TestUnreadBodiesAreRefunded(t *testing.T) {
	const size, all = 60_000, 20 << 20 // more than the connection window
	turn := make(chan struct{})
	flowClient := dialFlow(t, func(http.ResponseWriter, *http.Request) { <-turn })
	for sent := 0; sent < all; sent += size {
		id := flowClient.open("/", size)
		for remaining := size; remaining > 0; {
			flowClient.await(func() bool { return flowClient.sendable(id, remaining) > 0 })
			n := flowClient.sendableNow(id, remaining)
			remaining -= n
			flowClient.send(id, remaining == 0, make([]byte, n), nil)
		}
		flowClient.requireNoError(flowClient.WriteSettings()) // follows all data
		turn <- struct{}{}
		flowClient.await(func() bool { return flowClient.ended[id] })
	}
}

// TestPanicAfterEndFreesOneHandlerSlot checks that a panic after the end of a detached response
// does not free a second slot.
func TestPanicAfterEndFreesOneHandlerSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conf := config()
		conf.MaxStreams = 1
		client, server := net.Pipe()
		over, end, started := make(chan struct{}), make(chan struct{}), 0
		go func() {
			defer close(over)
			h2.NewServer(conf).ServeConn(context.Background(), newFakeWire(server),
				http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					started++
					if started == 1 {
						w.(detacher).Detach(func(over func(any)) {
							over(nil)
							panic(http.ErrAbortHandler)
						})
						return
					}
					<-end
				}))
		}()
		go func() { _, _ = io.Copy(io.Discard, client) }()
		c := &rawClient{Framer: http2.NewFramer(client, client), Conn: client, t: t}
		_, err := io.WriteString(client, http2.ClientPreface)
		c.requireNoError(errors.Join(err, c.WriteSettings()))
		c.writeFrame(http2.FrameHeaders, endFlags, 1, postRequest)
		synctest.Wait()
		c.writeFrame(http2.FrameHeaders, endFlags, 3, postRequest)
		synctest.Wait()
		c.requireNoError(c.WriteRSTStream(3, http2.ErrCodeCancel))
		c.writeFrame(http2.FrameHeaders, endFlags, 5, postRequest)
		synctest.Wait()
		if started != 2 {
			t.Errorf("%d handlers started, want 2", started)
		}
		close(end)
		synctest.Wait()
		_ = client.Close()
		<-over
	})
}

// TestDeadlineResetsStreamWhileWritingQueue checks that a deadline resets a stream whose handler
// writes only the queue.
func TestDeadlineResetsStreamWhileWritingQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe()
		over := make(chan struct{})
		go func() {
			defer close(over)
			h2.NewServer(config()).ServeConn(context.Background(), newFakeWire(server),
				http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(10 * time.Second))
					_ = http.NewResponseController(w).Flush() // the client does not read this in time
					<-r.Context().Done()
				}))
		}()
		raw := &rawClient{Framer: http2.NewFramer(client, client), Conn: client, t: t}
		go func() {
			_, err := io.WriteString(client, http2.ClientPreface)
			raw.requireNoError(errors.Join(err, raw.WriteSettings()))
		}()
		for acked := false; !acked; {
			f, err := raw.ReadFrame()
			raw.requireNoError(err)
			s, ok := f.(*http2.SettingsFrame)
			acked = ok && s.IsAck()
		}
		synctest.Wait()
		raw.writeFrame(http2.FrameHeaders, endFlags, 1, postRequest)
		time.Sleep(20 * time.Second)
		if got := raw.readEvent(); got != "reset 1 INTERNAL_ERROR" {
			t.Errorf("got %s, want a reset", got)
		}
		_ = client.Close()
		<-over
	})
}

// TestQueuedEventsAreLimited checks that about 1 MiB of events is queued for a client that does not
// read.
func TestQueuedEventsAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const all, part = 1000, 10_000
		client, server := net.Pipe()
		over, sent := make(chan struct{}), atomic.Int64{}
		go func() {
			defer close(over)
			h2.NewServer(config()).ServeConn(context.Background(), newFakeWire(server),
				http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					event := make([]byte, part)
					for range all {
						if _, err := w.Write(event); err != nil || http.NewResponseController(w).Flush() != nil {
							return
						}
						sent.Add(part)
					}
				}))
		}()
		c := &rawClient{Framer: http2.NewFramer(client, client), Conn: client, t: t}
		go func() { // reads until the first event
			buffer := make([]byte, 2000)
			_, _ = io.ReadFull(client, buffer)
		}()
		_, err := io.WriteString(client, http2.ClientPreface)
		const most = 1 << 30
		c.requireNoError(errors.Join(err, c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: most}),
			c.WriteWindowUpdate(0, most)))
		c.writeFrame(http2.FrameHeaders, endFlags, 1, postRequest)
		synctest.Wait()
		c.writeFrame(http2.FrameHeaders, endFlags, 3, postRequest) // either stream may be writing
		synctest.Wait()
		if n := sent.Load(); n < 1<<20 || n > 2<<20 {
			t.Errorf("%d bytes are queued, want 1 to 2 MiB", n)
		}
		_ = client.Close()
		<-over
	})
}

// TestGoAwayLingers checks that a client has time to read a GOAWAY, even if another timeout is
// checked meanwhile.
func TestGoAwayLingers(t *testing.T) {
	testTimed(t, true, func(c *timedClient, _ chan struct{}) {
		time.Sleep(config().WriteTimeout/2 - 100*time.Millisecond) // shortly before a timeout is checked
		c.s.Shutdown()
		c.expect(event{29 * time.Second, "away"})
		time.Sleep(500 * time.Millisecond)
		synctest.Wait()
		if len(c.events) > 0 {
			t.Errorf("unexpected event %v", <-c.events)
		}
		c.expect(event{30 * time.Second, "end"})
	})
}

// TestIdleTimeoutIgnoresQueuedResponses checks that a slow client receives all queued responses
// after the idle timeout.
func TestIdleTimeoutIgnoresQueuedResponses(t *testing.T) {
	const responses, size = 60, 16_000
	synctest.Test(t, func(t *testing.T) {
		conf := config()
		conf.IdleTimeout = 5 * time.Minute
		client, server := net.Pipe()
		over := make(chan struct{})
		go func() {
			defer close(over)
			h2.NewServer(conf).ServeConn(context.Background(), newFakeWire(server),
				http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					_, _ = w.Write(make([]byte, size))
				}))
		}()
		raw := &rawClient{Framer: http2.NewFramer(client, client), Conn: client, t: t}
		_, err := io.WriteString(client, http2.ClientPreface)
		raw.requireNoError(errors.Join(err, raw.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 30}),
			raw.WriteWindowUpdate(0, 1<<30)))
		for i := range uint32(responses) {
			raw.writeFrame(http2.FrameHeaders, endFlags, 2*i+1, postRequest)
		}
		synctest.Wait()
		for complete := 0; complete < responses; {
			frame, err := raw.ReadFrame()
			if err != nil {
				t.Errorf("got %d responses, then %v, want %d", complete, err, responses)
				break
			}
			if d, ok := frame.(*http2.DataFrame); ok && d.StreamEnded() {
				complete++
				if complete == responses {
					break
				}
				time.Sleep(10 * time.Second)
				raw.writeFrame(99, 0, 0, "") // counts as liveness
			}
		}
		_ = client.Close()
		<-over
	})
}
