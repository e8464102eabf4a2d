package aggregation

import "net/netip"

// Allowed reports whether dial permits the address. It is exported because no host name that a test
// can rely on resolves to a link-local address.
func Allowed(a netip.Addr, named bool) bool { return isAllowed(a, named) }
