package aggregate

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"syscall"

	"binnacle/services/apiserver/internal/carry"
)

// errAddress refuses addresses that mean this server's own machine or link, or many.
var errAddress = errors.New("address not allowed")

// dial connects to an extension server. Services and endpoints say where it is, so
// what only this machine reaches is not for them to name: metadata services of clouds
// (link-local addresses), and loopback addresses, unless an external name, which
// administrators give to servers beside this one, means them.
func (a *Aggregator) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	ip, err := netip.ParseAddr(host)
	named := err != nil
	if a.Dial != nil { // whoever leads there looks names up
		if !named && !allowed(ip, false) {
			return nil, errAddress
		}
		return a.Dial(ctx, network, addr)
	}
	d := &net.Dialer{Timeout: carry.DialTimeout, Control: func(_, at string, _ syscall.RawConn) error {
		a, err := netip.ParseAddrPort(at)
		if err != nil || !allowed(a.Addr(), named) {
			return errAddress
		}
		return nil
	}}
	return d.DialContext(ctx, network, addr)
}

func allowed(a netip.Addr, named bool) bool {
	ip := net.IP(a.Unmap().AsSlice())
	return ip.IsGlobalUnicast() || named && ip.IsLoopback()
}
