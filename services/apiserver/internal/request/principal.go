package request

import (
	"context"
	"net/netip"

	"binnacle/libs/api"
	"binnacle/libs/satoken"
	"binnacle/libs/serving/conns"
)

// Principal returns the key under which limits count a request. It is the key of the
// user in a context that the filters did not make.
func Principal(ctx context.Context) string {
	s := FromContext(ctx)
	if s.Principal != "" {
		return s.Principal
	}
	return PrincipalOf(s.User, "")
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
