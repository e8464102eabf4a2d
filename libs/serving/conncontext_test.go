package serving

import (
	"context"
	"net"
	"testing"
)

// TestRequestContextHasConnectionValues checks that the context of a request has the values of
// Config.Connection.
func TestRequestContextHasConnectionValues(t *testing.T) {
	type key struct{}
	client, conn := net.Pipe()
	defer client.Close()
	defer conn.Close()
	for _, want := range []any{nil, "value"} {
		s := &Server{}
		if want != nil {
			s.connection = func(ctx context.Context, c net.Conn) context.Context {
				if c != conn {
					t.Errorf("Connection was called with %v, want %v", c, conn)
				}
				return context.WithValue(ctx, key{}, want)
			}
		}
		if got := s.connContext(t.Context(), conn).Value(key{}); got != want {
			t.Errorf("context value = %v, want %v", got, want)
		}
	}
}
