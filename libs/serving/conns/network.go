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
	addrPort, _ := netip.ParseAddrPort(r.RemoteAddr)
	return Network(addrPort.Addr())
}

// Network returns the key by which limits count an address whose client is not authenticated yet:
// the address for IPv4, and the /64 network for IPv6, because a client usually owns all of it.
func Network(addr netip.Addr) string {
	addr = addr.Unmap().WithZone("")
	if addr.Is6() {
		if network, err := addr.Prefix(64); err == nil {
			addr = network.Addr()
		}
	}
	return "network " + addr.String()
}
