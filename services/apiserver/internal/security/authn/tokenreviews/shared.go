package tokenreviews

import (
	"context"

	"binnacle/libs/authenticator"
	"binnacle/libs/limit"
	"binnacle/services/apiserver/internal/request"
)

// limitedAuthenticator reviews tokens through another server. Client networks share its capacity:
// the network is the principal of a client that is not authenticated yet.
type limitedAuthenticator struct {
	authenticator.Token
	slots *limit.Queue[string]
}

// Shared limits an authenticator that calls another server to maxConcurrent reviews at a time.
// Client networks share the limit fairly.
func Shared(t authenticator.Token, maxConcurrent int) authenticator.Token {
	return &limitedAuthenticator{t, limit.New[string](limit.Options{Size: maxConcurrent, FairShare: true})}
}

// AuthenticateToken implements authenticator.Token.
func (s *limitedAuthenticator) AuthenticateToken(
	ctx context.Context,
	token string,
	audiences []string,
) (*authenticator.Response, bool, error) {
	slot := limit.Claim[string]{Key: request.Principal(ctx)}
	if err := s.acquireSlot(ctx, slot); err != nil {
		return nil, false, authenticator.Unavailable(err)
	}
	defer s.slots.Release(slot)
	return s.Token.AuthenticateToken(ctx, token, audiences)
}

// acquireSlot waits for a slot. It returns an error if no request waits for the review any more.
func (s *limitedAuthenticator) acquireSlot(ctx context.Context, slot limit.Claim[string]) error {
	if f, ok := ctx.Value(flightKey{}).(*inFlightReview); ok {
		wait, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(f.awaited, cancel)()
		f.waitsForSlot.Store(true)
		defer f.waitsForSlot.Store(false)
		ctx = wait
	}
	return s.slots.Acquire(ctx, slot)
}
