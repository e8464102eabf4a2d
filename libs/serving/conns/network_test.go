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
		{a: "2001:db8::1", b: "2001:db8::ffff:1", same: true},
		{a: "2001:db8::1", b: "2001:db8:0:1::1", same: false},
		{a: "192.0.2.1", b: "::ffff:192.0.2.1", same: true},
		{a: "192.0.2.1", b: "192.0.2.2", same: false},
	} {
		if same := clientNetwork(addrConn{addr: tc.a}) == clientNetwork(addrConn{addr: tc.b}); same != tc.same {
			t.Errorf("%s and %s count as one: %t, want %v", tc.a, tc.b, same, tc.same)
		}
	}
}
