package tokenreviews

import (
	"context"

	"binnacle/libs/authenticator"
	"binnacle/libs/limit"
	"binnacle/services/apiserver/internal/request"
)

// shared reviews tokens through another server. Clients share its capacity by network, which is
// their principal before they are authenticated. Tokens known to other authenticators do not wait
// here.
type shared struct {
	authenticator.Token
	share *limit.Queue[string]
}

// Shared bounds how many tokens an authenticator that calls another server reviews concurrently:
// most, fairly among the client networks.
func Shared(t authenticator.Token, most int) authenticator.Token {
	return &shared{t, limit.New[string](limit.Options{Size: most, Share: true})}
}

// AuthenticateToken implements authenticator.Token.
func (s *shared) AuthenticateToken(ctx context.Context, token string, audiences []string) (*authenticator.Response, bool, error) {
	slot := limit.Claim[string]{Key: request.Principal(ctx)}
	if err := s.acquire(ctx, slot); err != nil {
		return nil, false, authenticator.Unavailable(err)
	}
	defer s.share.Release(slot)
	return s.Token.AuthenticateToken(ctx, token, audiences)
}

// acquire waits for a slot, as long as a request waits for the review.
func (s *shared) acquire(ctx context.Context, slot limit.Claim[string]) error {
	if f, ok := ctx.Value(flightKey{}).(*flight); ok {
		wait, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(f.awaited, cancel)()
		f.waitsForSlot.Store(true)
		defer f.waitsForSlot.Store(false)
		ctx = wait
	}
	return s.share.Acquire(ctx, slot)
}
