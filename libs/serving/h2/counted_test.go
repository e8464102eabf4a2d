package h2_test

import (
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"golang.org/x/net/http2"

	"binnacle/libs/serving/h2"
)

// charging is a connection that adds up what its client is charged for.
type charging struct {
	plain
	resets, control, sent atomic.Int64
}

func (w *charging) Came(resets, control int) {
	w.resets.Add(int64(resets))
	w.control.Add(int64(control))
}

func (w *charging) Sent(resets, _, _ int) { w.sent.Add(int64(resets)) }

// TestWhatClientsAreChargedFor is what resets, and what neither asks nor sends anything to speak of.
func TestWhatClientsAreChargedFor(t *testing.T) {
	const data = http2.FrameData
	for name, c := range map[string]struct {
		send                  func(c *unread)
		resets, control, sent int64
	}{
		"nothing": {func(*unread) {}, 0, 0, 0},
		"requests": {func(c *unread) {
			c.raw(http2.FrameHeaders, endsHeaders, 3, aList)
			c.raw(http2.FrameHeaders, endsHeaders, 5, aList)
		}, 0, 0, 0},
		"a reset":          {func(c *unread) { c.raw(http2.FrameRSTStream, 0, 1, "\x00\x00\x00\x08") }, 1, 0, 0},
		"a body":           {func(c *unread) { c.raw(data, 0, 1, strings.Repeat("x", 64)) }, 0, 0, 0},
		"little of a body": {func(c *unread) { c.raw(data, 0, 1, strings.Repeat("x", 63)) }, 0, 1, 0},
		"padding":          {func(c *unread) { c.raw(data, http2.FlagDataPadded, 1, "\x50"+strings.Repeat("x", 81)) }, 0, 1, 0},
		"data too many": {func(c *unread) {
			c.raw(data, http2.FlagDataEndStream, 1, strings.Repeat("x", 64))
			c.raw(data, 0, 1, strings.Repeat("x", 64))
		}, 0, 1, 1},
		"an order": {func(c *unread) { c.raw(http2.FramePriority, 0, 1, onNothing) }, 0, 1, 0},
		"settings": {func(c *unread) { c.raw(http2.FrameSettings, 0, 0, "") }, 0, 1, 0},
		"settings of many": {func(c *unread) {
			for id := uint32(3); id < 32; id += 2 {
				c.raw(http2.FrameHeaders, endsHeaders, id, aList)
			}
			c.raw(http2.FrameSettings, 0, 0, "")
		}, 0, 3, 0},
		"what nobody takes": {func(c *unread) {
			c.raw(http2.FrameGoAway, 0, 0, "\x00\x00\x00\x00\x00\x00\x00\x00")
			c.raw(http2.FrameHeaders, endsHeaders, 3, aList)
			c.raw(data, 0, 3, strings.Repeat("x", 64))
		}, 0, 3, 0},
		"what is malformed": {func(c *unread) { c.raw(http2.FrameHeaders, endsHeaders, 3, aField) }, 0, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &charging{}
				client := dialServer(t, h2.NewServer(config()), func(c net.Conn) h2.Wire {
					w.plain = newPlain(c)
					return w
				}, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
				client.raw(http2.FrameHeaders, endsHeaders, 1, aList)
				pong := func() { // after all resets that were sent before
					client.must(client.WritePing(false, [8]byte{77}))
					client.until("ping 77")
					synctest.Wait() // until what came is told of
				}
				pong()
				resets, control := w.resets.Load(), w.control.Load()
				c.send(client)
				pong()
				if got := w.resets.Load() - resets; got != c.resets {
					t.Errorf("%d resets are charged, want %d", got, c.resets)
				}
				if got := w.control.Load() - control - 1; got != c.control {
					t.Errorf("%d frames are charged, want %d", got, c.control)
				}
				if got := w.sent.Load(); got != c.sent {
					t.Errorf("%d resets by the server are charged, want %d", got, c.sent)
				}
			})
		})
	}
}

// TestFramesThatAreCut are none: nobody takes what came of them for all, nor what came before them.
func TestFramesThatAreCut(t *testing.T) {
	large := aList + "\x00\x01x\x7f\x89\x26" + strings.Repeat("v", 5000)
	for name, c := range map[string]struct {
		list      string
		more, cut int // of what the frame says, and of what comes
	}{"small": {aList, 1, 0}, "large": {large, 0, 10}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				asked := make(chan struct{}, 10)
				client := dialUnread(t, func(http.ResponseWriter, *http.Request) { asked <- struct{}{} })
				client.raw(http2.FrameHeaders, ends, 1, c.list)
				if got := client.whole(1); got != "200; content-length=0" {
					t.Fatalf("it is answered %s", got)
				}
				n := len(c.list) + c.more
				_, err := client.Conn.Write(append([]byte{0, byte(n >> 8), byte(n), byte(http2.FrameHeaders), byte(ends), 0, 0, 0, 3}, c.list[:len(c.list)-c.cut]...))
				client.must(err)
				_ = client.Conn.Close()
				synctest.Wait()
				if <-asked; len(asked) > 0 {
					t.Error("it is a request")
				}
			})
		})
	}
}
