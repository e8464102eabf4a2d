package serving

import (
	"context"
	"crypto/tls"
	"net"
	"testing"
)

// TestConnectionsAreKnown: requests find the connection below TLS, and what the service says
// of it.
func TestConnectionsAreKnown(t *testing.T) {
	type key struct{}
	_, server := connected(t)
	below := newTurnConn(t.Context(), &handshakes{}, server)
	for name, tc := range map[string]struct {
		conn  net.Conn
		below any
	}{
		"the server's own":  {tls.Server(below, nil), below},
		"another below TLS": {tls.Server(server, nil), nil},
		"one without TLS":   {below, nil},
	} {
		for _, said := range []any{nil, "said"} {
			s := &Server{}
			if said != nil {
				s.conn = func(ctx context.Context, c net.Conn) context.Context {
					if c != tc.conn {
						t.Errorf("%s: the service hears of %v", name, c)
					}
					return context.WithValue(ctx, key{}, said)
				}
			}
			ctx := s.connContext(t.Context(), tc.conn)
			if got := ctx.Value(belowKey{}); got != tc.below {
				t.Errorf("%s: below is %v", name, got)
			}
			if got := ctx.Value(key{}); got != said {
				t.Errorf("%s: the service said %v, not %v", name, got, said)
			}
		}
	}
}
