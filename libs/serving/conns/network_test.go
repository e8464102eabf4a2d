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

// TestClientNetworkGroupsIPv6AddressesBy64 checks that the addresses of an IPv6 /64 network count
// as one client.
func TestClientNetworkGroupsIPv6AddressesBy64(t *testing.T) {
	for _, tc := range []struct {
		first, second string
		same          bool
	}{
		{first: "2001:db8::1", second: "2001:db8::ffff:1", same: true},
		{first: "2001:db8::1", second: "2001:db8:0:1::1", same: false},
		{first: "192.0.2.1", second: "::ffff:192.0.2.1", same: true},
		{first: "192.0.2.1", second: "192.0.2.2", same: false},
	} {
		if same := clientNetwork(addrConn{addr: tc.first}) == clientNetwork(addrConn{addr: tc.second}); same != tc.same {
			t.Errorf("%s and %s count as one: %t, want %v", tc.first, tc.second, same, tc.same)
		}
	}
}
