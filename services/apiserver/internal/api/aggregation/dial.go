package aggregation

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"syscall"

	"binnacle/services/apiserver/internal/proxy/reverseproxy"
)

// errAddress is the error for addresses that isAllowed rejects.
var errAddress = errors.New("address not allowed")

// dial connects to an extension server at addr, which comes from a service and its endpoints. An
// author of services must not reach addresses that only this machine can reach: metadata services
// of clouds (link-local addresses) and loopback addresses. However, an external name may resolve to
// a loopback address, because administrators use it for servers on the same machine.
func (a *Aggregator) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	ip, err := netip.ParseAddr(host)
	isName := err != nil
	if a.Dial != nil { // the dialer resolves names
		if !isName && !isAllowed(ip, isName) {
			return nil, errAddress
		}
		return a.Dial(ctx, network, addr)
	}
	dialer := &net.Dialer{Timeout: reverseproxy.DialTimeout, Control: func(_, at string, _ syscall.RawConn) error {
		resolved, err := netip.ParseAddrPort(at)
		if err != nil || !isAllowed(resolved.Addr(), isName) {
			return errAddress
		}
		return nil
	}}
	return dialer.DialContext(ctx, network, addr)
}

// isAllowed reports whether dial may connect to an address. isName reports that the address is the
// result of resolving a host name.
func isAllowed(address netip.Addr, isName bool) bool {
	ip := net.IP(address.Unmap().AsSlice())
	return ip.IsGlobalUnicast() || isName && ip.IsLoopback()
}
