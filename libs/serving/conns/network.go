package conns

import (
	"net"
	"net/http"
	"net/netip"
)

// clientNetwork returns the key by which limits count the client of a connection.
func clientNetwork(c net.Conn) string {
	if a, ok := c.RemoteAddr().(*net.TCPAddr); ok {
		return Network(a.AddrPort().Addr())
	}
	return Network(netip.Addr{})
}

// NetworkOf returns the key by which limits count the client of a request. Addresses that cannot be
// parsed share one key.
func NetworkOf(r *http.Request) string {
	at, _ := netip.ParseAddrPort(r.RemoteAddr)
	return Network(at.Addr())
}

// Network returns the key by which limits count an address whose client is not authenticated yet:
// the address for IPv4, and the /64 network for IPv6, because a client usually owns all of it.
func Network(a netip.Addr) string {
	from := a.Unmap().WithZone("")
	if from.Is6() {
		if network, err := from.Prefix(64); err == nil {
			from = network.Addr()
		}
	}
	return "network " + from.String()
}
