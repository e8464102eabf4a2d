package conns

import (
	"net"
	"testing"
)

// addrConn is a connection with a remote address.
type addrConn struct {
	net.Conn
	addr string
}

func (f addrConn) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(f.addr), Port: 1} }

// TestClientNetwork checks that the addresses of an IPv6 /64 network count as one client.
func TestClientNetwork(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		same bool
	}{
		{"2001:db8::1", "2001:db8::ffff:1", true},
		{"2001:db8::1", "2001:db8:0:1::1", false},
		{"192.0.2.1", "::ffff:192.0.2.1", true},
		{"192.0.2.1", "192.0.2.2", false},
	} {
		if same := clientNetwork(addrConn{addr: tc.a}) == clientNetwork(addrConn{addr: tc.b}); same != tc.same {
			t.Errorf("%s and %s count as one: %t", tc.a, tc.b, same)
		}
	}
}
