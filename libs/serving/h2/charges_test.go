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

// chargedWire counts resets and control frames.
type chargedWire struct {
	fakeWire
	resets, control, sent atomic.Int64
}

func (w *chargedWire) FramesReceived(resets, control int) {
	w.resets.Add(int64(resets))
	w.control.Add(int64(control))
}

func (w *chargedWire) FramesSent(resets, _, _ int) { w.sent.Add(int64(resets)) }

// TestFramesAreCharged checks which frames count as resets and control frames.
func TestFramesAreCharged(t *testing.T) {
	const data = http2.FrameData
	for name, test := range map[string]struct {
		sendFrames            func(c *rawClient)
		resets, control, sent int64
	}{
		"nothing": {sendFrames: func(*rawClient) {}, resets: 0, control: 0, sent: 0},
		"requests": {sendFrames: func(c *rawClient) {
			c.writeFrame(http2.FrameHeaders, endsHeaders, 3, postBlock)
			c.writeFrame(http2.FrameHeaders, endsHeaders, 5, postBlock)
		}, resets: 0, control: 0, sent: 0},
		"a reset": {
			sendFrames: func(c *rawClient) { c.writeFrame(http2.FrameRSTStream, 0, 1, "\x00\x00\x00\x08") },
			resets:     1,
			control:    0,
			sent:       0,
		},
		"a body": {
			sendFrames: func(c *rawClient) { c.writeFrame(data, 0, 1, strings.Repeat("x", 64)) },
			resets:     0,
			control:    0,
			sent:       0,
		},
		"little of a body": {
			sendFrames: func(c *rawClient) { c.writeFrame(data, 0, 1, strings.Repeat("x", 63)) },
			resets:     0,
			control:    1,
			sent:       0,
		},
		"padding": {
			sendFrames: func(c *rawClient) { c.writeFrame(data, http2.FlagDataPadded, 1, "\x50"+strings.Repeat("x", 81)) },
			resets:     0,
			control:    1,
			sent:       0,
		},
		"data too many": {sendFrames: func(c *rawClient) {
			c.writeFrame(data, http2.FlagDataEndStream, 1, strings.Repeat("x", 64))
			c.writeFrame(data, 0, 1, strings.Repeat("x", 64))
		}, resets: 0, control: 1, sent: 1},
		"an order": {
			sendFrames: func(c *rawClient) { c.writeFrame(http2.FramePriority, 0, 1, dependsOnNothing) },
			resets:     0,
			control:    1,
			sent:       0,
		},
		"settings": {sendFrames: func(c *rawClient) { c.writeFrame(http2.FrameSettings, 0, 0, "") }, resets: 0, control: 1, sent: 0},
		"settings of many": {sendFrames: func(c *rawClient) {
			for id := uint32(3); id < 32; id += 2 {
				c.writeFrame(http2.FrameHeaders, endsHeaders, id, postBlock)
			}
			c.writeFrame(http2.FrameSettings, 0, 0, "")
		}, resets: 0, control: 3, sent: 0},
		"ignored frames": {sendFrames: func(c *rawClient) {
			c.writeFrame(http2.FrameGoAway, 0, 0, "\x00\x00\x00\x00\x00\x00\x00\x00")
			c.writeFrame(http2.FrameHeaders, endsHeaders, 3, postBlock)
			c.writeFrame(data, 0, 3, strings.Repeat("x", 64))
		}, resets: 0, control: 3, sent: 0},
		"malformed request": {
			sendFrames: func(c *rawClient) { c.writeFrame(http2.FrameHeaders, endsHeaders, 3, customField) },
			resets:     0,
			control:    0,
			sent:       1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				wire := &chargedWire{}
				client := dialServer(t, h2.NewServer(config()), func(c net.Conn) h2.Wire {
					wire.fakeWire = newFakeWire(c)
					return wire
				}, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
				client.writeFrame(http2.FrameHeaders, endsHeaders, 1, postBlock)
				pong := func() { // follows all earlier resets
					client.requireNoError(client.WritePing(false, [8]byte{77}))
					client.waitFor("ping 77")
					synctest.Wait() // until the counts are reported
				}
				pong()
				resets, control := wire.resets.Load(), wire.control.Load()
				test.sendFrames(client)
				pong()
				if got := wire.resets.Load() - resets; got != test.resets {
					t.Errorf("charged %d resets, want %d", got, test.resets)
				}
				if got := wire.control.Load() - control - 1; got != test.control {
					t.Errorf("charged %d control frames, want %d", got, test.control)
				}
				if got := wire.sent.Load(); got != test.sent {
					t.Errorf("charged %d server resets, want %d", got, test.sent)
				}
			})
		})
	}
}

// TestTruncatedHeadersAreIgnored checks that an incomplete header section starts no request.
func TestTruncatedHeadersAreIgnored(t *testing.T) {
	large := postBlock + "\x00\x01x\x7f\x89\x26" + strings.Repeat("v", 5000)
	for name, test := range map[string]struct {
		list                     string
		continuations, truncated int // added to the length in the frame header; missing at the end
	}{
		"small": {list: postBlock, continuations: 1, truncated: 0},
		"large": {list: large, continuations: 0, truncated: 10},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				permitRequests := make(chan struct{}, 10)
				client := dialRaw(t, func(http.ResponseWriter, *http.Request) { permitRequests <- struct{}{} })
				client.writeFrame(http2.FrameHeaders, endFlags, 1, test.list)
				if got := client.readResponse(1); got != "200; content-length=0" {
					t.Fatalf("response = %s, want \"200; content-length=0\"", got)
				}
				n := len(test.list) + test.continuations
				_, err := client.Conn.Write(append([]byte{0, byte(n >> 8), byte(n), byte(http2.FrameHeaders),
					byte(endFlags), 0, 0, 0, 3}, test.list[:len(test.list)-test.truncated]...))
				client.requireNoError(err)
				_ = client.Conn.Close()
				synctest.Wait()
				<-permitRequests
				if len(permitRequests) > 0 {
					t.Error("the handler was called for a truncated request")
				}
			})
		})
	}
}
