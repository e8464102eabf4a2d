package h2_test

import (
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"binnacle/libs/serving/h2"
)

// TestTooManyFieldsGet431 checks the limit on the number of header fields.
func TestTooManyFieldsGet431(t *testing.T) {
	for fields, want := range map[int]string{10_000 - 4: "200", 10_001 - 4: "431"} {
		c := config()
		c.MaxHeaderBytes = 1 << 20
		client := dialServer(t, h2.NewServer(c), func(c net.Conn) h2.Wire { return newFakeWire(c) },
			func(w http.ResponseWriter, r *http.Request) {
				if len(r.Header["X"]) != 10_000-4 {
					t.Errorf("got %d fields, want %v", len(r.Header["X"]), 10_000-4)
				}
			})
		list := encodeRequest(client.hpack, &client.block, slices.Repeat([]hpack.HeaderField{{Name: "x", Value: "y"}}, fields)...)
		go client.sendBlock(list, func() int { return 16 << 10 })
		if got := client.readStatuses(1); !slices.Equal(got, []string{want}) {
			t.Errorf("%d fields: got statuses %v, want %s", fields, got, want)
		}
	}
}

// rejectingWire has no bytes for unfinished header blocks.
type rejectingWire struct {
	fakeWire
	requested atomic.Int64
}

func (w *rejectingWire) ReserveHeader(n int) bool {
	w.requested.Add(int64(n))
	return n == 0
}

// TestUnfinishedLargeHeadersAreLimited checks that unfinished header blocks reserve bytes if their
// encoded or decoded size is large.
func TestUnfinishedLargeHeadersAreLimited(t *testing.T) {
	for name, test := range map[string]struct {
		parts []string
		want  string
	}{
		"small": {parts: []string{postBlock, customField}, want: pingAck},
		"large": {
			parts: []string{postBlock, "\x00\x01x\x7f\xc1\x3d" + strings.Repeat("v", 8_000),
				customField + customField + customField + strings.Repeat(customField, 40)},
			want: "away ENHANCE_YOUR_CALM",
		},
		"unpacked": {parts: []string{postBlock, "\x40\x01x\x7f\xa1\x0e" + strings.Repeat("v", 1952), "\xbe\xbe\xbe\xbe"},
			want: "away ENHANCE_YOUR_CALM"},
	} {
		t.Run(name, func(t *testing.T) {
			wire := &rejectingWire{}
			client := dialServer(t, h2.NewServer(config()), func(c net.Conn) h2.Wire {
				wire.fakeWire = newFakeWire(c)
				return wire
			}, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
			kind := http2.FrameHeaders
			for _, part := range test.parts {
				client.writeFrame(kind, 0, 1, part)
				kind = http2.FrameContinuation
			}
			if test.want == pingAck {
				client.writeFrame(kind, endsHeaders, 1, customField)
				client.ping()
				if n := wire.requested.Load(); n > 0 {
					t.Errorf("%d bytes were reserved, want 0", n)
				}
			} else if got := client.readEvent(); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

// TestHandlersAreLimited checks that handlers of reset streams count against the limit, and that
// waiting requests run later.
func TestHandlersAreLimited(t *testing.T) {
	const most = 2
	conf := config()
	conf.MaxStreams = most
	endHandler, started := make(chan struct{}), make(chan string, 1000)
	var running atomic.Int64
	client := dialServer(t, h2.NewServer(conf), func(c net.Conn) h2.Wire { return newFakeWire(c) },
		func(_ http.ResponseWriter, r *http.Request) {
			if n := running.Add(1); n > most {
				t.Errorf("%d handlers are running, want at most %v", n, most)
			}
			started <- r.URL.Path
			<-endHandler // even if the client resets the stream
			running.Add(-1)
		})
	for range most {
		client.requireNoError(client.WriteRSTStream(client.openPost("/first", true), http2.ErrCodeCancel))
		<-started
	}
	kept := client.openPost("/kept", true)
	for range 20 * most {
		client.requireNoError(client.WriteRSTStream(client.openPost("/given-up", true), http2.ErrCodeCancel))
	}
	client.ping()
	if len(started) > 0 {
		t.Errorf("at the limit: got %s started, want none", <-started)
	}
	close(endHandler)
	if got := client.readResponse(kept); got != "200; content-length=0" {
		t.Errorf("waiting request got %s, want \"200; content-length=0\"", got)
	}
	client.ping()
	if path := <-started; path != "/kept" || len(started) > 0 {
		t.Errorf("got %s started, and %d more, want only /kept", path, len(started))
	}
}

// TestQueuedRequestOfClosedConnectionDoesNotRun checks that waiting requests of a closed connection
// do not start.
func TestQueuedRequestOfClosedConnectionDoesNotRun(t *testing.T) {
	conf := config()
	conf.MaxStreams = 1
	started, end := make(chan struct{}, 10), make(chan struct{})
	client := dialServer(t, h2.NewServer(conf), func(c net.Conn) h2.Wire { return newFakeWire(c) },
		func(_ http.ResponseWriter, r *http.Request) {
			started <- struct{}{}
			<-end
		})
	client.requireNoError(client.WriteRSTStream(client.openPost("/", true), http2.ErrCodeCancel))
	<-started
	client.openPost("/", true)
	client.ping()
	_ = client.Conn.Close()
	over := <-client.ended
	close(end)
	client.ended <- over
	if len(started) > 0 {
		t.Error("handler of the queued request: got it started, want it not called")
	}
}
