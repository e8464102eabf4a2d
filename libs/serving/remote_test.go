package serving

import (
	"net"
	"testing"
)

// from is a connection from an address.
type from struct {
	net.Conn
	addr string
}

func (f from) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(f.addr), Port: 1} }

// TestClientsOfANetworkAreOne: who has a network of IPv6 has no more turns by it.
func TestClientsOfANetworkAreOne(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		same bool
	}{
		{"2001:db8::1", "2001:db8::ffff:1", true},
		{"2001:db8::1", "2001:db8:0:1::1", false},
		{"192.0.2.1", "::ffff:192.0.2.1", true},
		{"192.0.2.1", "192.0.2.2", false},
	} {
		if same := remote(from{addr: tc.a}) == remote(from{addr: tc.b}); same != tc.same {
			t.Errorf("%s and %s are one: %t", tc.a, tc.b, same)
		}
	}
}
