package h2_test

import (
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"binnacle/libs/serving/h2"
)

// permitWire records whether large header fields acquire and release their permit.
type permitWire struct {
	fakeWire
	acquired, hasPermit bool
}

func (w *permitWire) AcquireHeaderPermit() { w.acquired, w.hasPermit = true, true }
func (w *permitWire) ReleaseHeaderPermit() { w.hasPermit = false }

// TestLargeHeadersNeedPermit checks that only large header blocks acquire a permit.
func TestLargeHeadersNeedPermit(t *testing.T) {
	for name, test := range map[string]struct {
		field, bytes int
		turn         bool
	}{
		"small":             {field: 100, bytes: 1000},
		"large":             {field: 100, bytes: 40_000, turn: true},
		"of large fields":   {field: 8000, bytes: 40_000, turn: true},
		"of a single field": {field: 40_000, bytes: 40_000, turn: true},
	} {
		t.Run(name, func(t *testing.T) {
			wire, permitRequests := &permitWire{}, make(chan int)
			conn := dialServer(t, h2.NewServer(config()), func(c net.Conn) h2.Wire {
				wire.fakeWire = newFakeWire(c)
				return wire
			}, func(_ http.ResponseWriter, r *http.Request) { permitRequests <- len(strings.Join(r.Header["X"], "")) })
			for _, headerField := range []hpack.HeaderField{
				{Name: ":method", Value: "GET"},
				{Name: ":scheme", Value: "https"},
				{Name: ":authority", Value: "a"},
				{Name: ":path", Value: "/"},
			} {
				conn.requireNoError(conn.hpack.WriteField(headerField))
			}
			for range test.bytes / test.field {
				conn.requireNoError(conn.hpack.WriteField(hpack.HeaderField{
					Name:      "x",
					Value:     strings.Repeat("~", test.field),
					Sensitive: true,
				}))
			}
			remaining := conn.block.Bytes()
			next := func() []byte {
				part := remaining[:min(len(remaining), 16<<10)]
				remaining = remaining[len(part):]
				return part
			}
			part := next()
			conn.requireNoError(conn.WriteHeaders(http2.HeadersFrameParam{
				StreamID:      1,
				BlockFragment: part,
				EndStream:     true,
				EndHeaders:    len(remaining) == 0,
			}))
			for len(remaining) > 0 {
				part = next()
				conn.requireNoError(conn.WriteContinuation(1, len(remaining) == 0, part))
			}
			if n := <-permitRequests; n != test.bytes {
				t.Errorf("got %d bytes, want %v", n, test.bytes)
			}
			if wire.acquired != test.turn {
				t.Errorf("acquired a permit: %t, want %t", wire.acquired, test.turn)
			}
		})
	}
}

// TestLargeDecodedHeadersNeedPermit checks that a small block with many repeated fields acquires
// and releases a permit.
func TestLargeDecodedHeadersNeedPermit(t *testing.T) {
	conf := config()
	conf.MaxHeaderBytes = 1 << 20
	wire, permitRequests := &permitWire{}, make(chan bool, 1)
	conn := dialServer(t, h2.NewServer(conf), func(c net.Conn) h2.Wire {
		wire.fakeWire = newFakeWire(c)
		return wire
	}, func(_ http.ResponseWriter, r *http.Request) {
		permitRequests <- wire.acquired && len(r.Header["X"]) == 20
	})
	list := encodeRequest(conn.hpack, &conn.block,
		slices.Repeat([]hpack.HeaderField{{Name: "x", Value: strings.Repeat("~", 3900)}}, 20)...)
	conn.sendBlock(list, func() int { return 16 << 10 })
	if !<-permitRequests {
		t.Error("large header section: got no permit, want one before the handler is called")
	}
	conn.readStatuses(1)
	conn.ping()
	if wire.hasPermit {
		t.Error("permit after the response: got it held, want it released")
	}
}
