package serving

import (
	"crypto/tls"
	"net"
	"testing"
)

// TestRequestContextHasConnection checks that the context of a request holds the connection below TLS.
func TestRequestContextHasConnection(t *testing.T) {
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
		ctx := new(Server).connContext(t.Context(), tc.conn)
		if got := ctx.Value(connKey{}); got != tc.below {
			t.Errorf("%s: context has connection %v", name, got)
		}
	}
}
