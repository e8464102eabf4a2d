package aggregation

import "net/netip"

// Allowed is what dial makes of an address; no name that a test can count on means one on the link.
func Allowed(a netip.Addr, named bool) bool { return allowed(a, named) }
