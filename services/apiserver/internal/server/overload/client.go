package overload

import (
	"context"

	"binnacle/libs/api"
	"binnacle/libs/limit"
	"binnacle/libs/node"
	"binnacle/services/apiserver/internal/request"
)

// reservedShare is the divisor of the size of a limit that gives the reserve. Nodes and the
// suite's own services may use half of the reserve, only the services the other half.
const reservedShare = 10

// client is the user of a request and the principal under which the
// limits of this package count it.
type client struct {
	*request.User
	principal string
}

// clientFrom returns the client of the request in ctx.
func clientFrom(ctx context.Context) client {
	return client{request.UserFrom(ctx), request.Principal(ctx)}
}

// newClaim returns a claim of n units of q. The claim leaves a reserve free for nodes and the
// suite's services, unless the client is one of them.
func (u client) newClaim(queue *limit.Queue[string], cost int) limit.Claim[string] {
	claim := limit.Claim[string]{Key: u.principal, Cost: cost}
	reserved := queue.Size() / reservedShare
	switch {
	case u.User == nil:
		claim.MinFree = reserved
	case isSuiteService(u.User):
		claim.NoFairShare = true
	case u.InGroup(node.Group):
		claim.MinFree = (reserved + 1) / 2
	default:
		claim.MinFree = reserved
	}
	return claim
}

// tryAcquire acquires a claim of cost units of queue, which leaves room units free besides the
// reserve. If too few are free, an administrator is admitted without units: ok is true and held is
// false.
func (u client) tryAcquire(queue *limit.Queue[string], cost, room int) (claim limit.Claim[string], held, ok bool) {
	claim = u.newClaim(queue, cost)
	claim.MinFree += room
	administrator := u.InGroup(api.GroupMasters)
	if administrator {
		claim.MinFree = 0
		claim.NoFairShare = true
	}
	held = queue.TryAcquire(claim)
	return claim, held, held || administrator
}

// newSharedLimit returns a limit of n units that principals share; 0 means no limit.
func newSharedLimit(size int) *limit.Queue[string] {
	return limit.New[string](limit.Options{Size: size, FairShare: true})
}
