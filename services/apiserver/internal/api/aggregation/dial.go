package aggregation

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"syscall"

	"binnacle/services/apiserver/internal/proxy/reverseproxy"
)

// errAddress rejects loopback, link-local and multicast addresses.
var errAddress = errors.New("address not allowed")

// dial connects to an extension server. Services and endpoints define its address. They must not
// name addresses that only this machine can reach: metadata services of clouds (link-local
// addresses) and loopback addresses. An external name may resolve to a loopback address, because
// administrators use it for servers on the same machine.
func (a *Aggregator) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	ip, err := netip.ParseAddr(host)
	named := err != nil
	if a.Dial != nil { // the dialer resolves names
		if !named && !allowed(ip, false) {
			return nil, errAddress
		}
		return a.Dial(ctx, network, addr)
	}
	d := &net.Dialer{Timeout: reverseproxy.DialTimeout, Control: func(_, at string, _ syscall.RawConn) error {
		a, err := netip.ParseAddrPort(at)
		if err != nil || !allowed(a.Addr(), named) {
			return errAddress
		}
		return nil
	}}
	return d.DialContext(ctx, network, addr)
}

// allowed reports whether an address may be connected to. named states that it was resolved from a
// host name.
func allowed(a netip.Addr, named bool) bool {
	ip := net.IP(a.Unmap().AsSlice())
	return ip.IsGlobalUnicast() || named && ip.IsLoopback()
}
