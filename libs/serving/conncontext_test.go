package serving

import (
	"context"
	"crypto/tls"
	"net"
	"testing"
)

// TestRequestContextHasConnection checks that the context of a request holds the connection below
// TLS and the values of Config.Connection.
func TestRequestContextHasConnection(t *testing.T) {
	type key struct{}
	_, server := tcpPair(t)
	below := newLimitedConn(t.Context(), &handshakes{}, server)
	for name, tc := range map[string]struct {
		conn  net.Conn
		below any
	}{
		"TLS of the server":           {tls.Server(below, nil), below},
		"TLS over another connection": {tls.Server(server, nil), nil},
		"without TLS":                 {below, nil},
	} {
		for _, said := range []any{nil, "value"} {
			s := &Server{}
			if said != nil {
				s.connection = func(ctx context.Context, c net.Conn) context.Context {
					if c != tc.conn {
						t.Errorf("%s: Connection was called with %v", name, c)
					}
					return context.WithValue(ctx, key{}, said)
				}
			}
			ctx := s.connContext(t.Context(), tc.conn)
			if got := ctx.Value(connKey{}); got != tc.below {
				t.Errorf("%s: context has connection %v", name, got)
			}
			if got := ctx.Value(key{}); got != said {
				t.Errorf("%s: context value = %v, want %v", name, got, said)
			}
		}
	}
}
