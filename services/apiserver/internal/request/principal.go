package request

import (
	"context"
	"net/netip"

	"binnacle/libs/api"
	"binnacle/libs/satoken"
	"binnacle/libs/serving/conns"
)

// Principal returns the key under which limits count a request. In a context that the filters did not
// make, it is the key of the user.
func Principal(ctx context.Context) string {
	state := FromContext(ctx)
	if state.Principal != "" {
		return state.Principal
	}
	return PrincipalOf(state.User, "")
}

// PrincipalOf returns the key under which limits count a user whose requests come from an
// address. All service accounts of a namespace are one principal, because an editor of the
// namespace can create and impersonate any number of them. Unauthenticated requests count
// for the network of their address.
func PrincipalOf(user *User, address string) string {
	if user == nil || user.InGroup(api.GroupUnauthenticated) {
		if from, err := netip.ParseAddrPort(address); err == nil {
			return conns.Network(from.Addr())
		}
		return "network " + address
	}
	if namespace, _, ok := satoken.SplitUsername(user.Name); ok {
		return "namespace " + namespace
	}
	return "user " + user.Name
}
