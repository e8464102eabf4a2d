package request

import (
	"context"
	"net/netip"

	"binnacle/libs/api"
	"binnacle/libs/satoken"
	"binnacle/libs/serving/conns"
)

// SetPrincipal records the key under which limits count a request, if Carry has attached space for
// it. The authentication filter calls it. Impersonation does not change the key, so a request
// counts for the impersonator, unless the impersonator is in system:masters.
func SetPrincipal(ctx context.Context, principal string) {
	if c, ok := ctx.Value(keyState).(*state); ok {
		c.principal = principal
	}
}

// Principal returns the key under which limits count a request. Without SetPrincipal it is the key
// of the user.
func Principal(ctx context.Context) string {
	if c, ok := ctx.Value(keyState).(*state); ok && c.principal != "" {
		return c.principal
	}
	return PrincipalOf(UserFrom(ctx), "")
}

// SetPriorityLevel records the priority level of a request, if Carry has attached space for it. The
// flow control filter calls it.
func SetPriorityLevel(ctx context.Context, level string) {
	if c, ok := ctx.Value(keyState).(*state); ok {
		c.level = level
	}
}

// PriorityLevel returns the name of the request's priority level. It is "" without flow control.
func PriorityLevel(ctx context.Context) string {
	if c, ok := ctx.Value(keyState).(*state); ok {
		return c.level
	}
	return ""
}

// PrincipalOf returns the key under which limits count a user whose requests come from an
// address. All service accounts of a namespace are one principal, because an editor of the
// namespace can create and impersonate any number of them. Unauthenticated requests count
// for the network of their address.
func PrincipalOf(u *User, address string) string {
	if u == nil || u.InGroup(api.GroupUnauthenticated) {
		if from, err := netip.ParseAddrPort(address); err == nil {
			return conns.Network(from.Addr())
		}
		return "network " + address
	}
	if namespace, _, ok := satoken.SplitUsername(u.Name); ok {
		return "namespace " + namespace
	}
	return "user " + u.Name
}
