package reviews

import (
	"context"

	"binnacle/libs/authenticator"
	"binnacle/services/apiserver/internal/proxy/webhookclient"
)

// maxAsked is how many tokens another server reviews concurrently.
const maxAsked = 1000

// shared reviews tokens through another server. Clients share its capacity by network, because they
// are not authenticated yet. Tokens known to other authenticators do not wait here.
type shared struct {
	authenticator.Token
	share *webhookclient.FairLimiter
}

// Shared bounds how many tokens an authenticator that calls another server reviews concurrently,
// fairly among the client networks.
func Shared(t authenticator.Token) authenticator.Token {
	return &shared{t, webhookclient.NewFairLimiter(maxAsked)}
}

// AuthenticateToken implements authenticator.Token.
func (s *shared) AuthenticateToken(ctx context.Context, token string, audiences []string) (*authenticator.Response, bool, error) {
	leave, err := s.enter(ctx)
	if err != nil {
		return nil, false, authenticator.Unavailable(err)
	}
	defer leave()
	return s.Token.AuthenticateToken(ctx, token, audiences)
}

// enter waits for a slot, as long as a request waits for the review.
func (s *shared) enter(ctx context.Context) (leave func(), err error) {
	if f, ok := ctx.Value(flightKey{}).(*flight); ok {
		wait, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(f.awaited, cancel)()
		f.inLine.Store(true)
		defer f.inLine.Store(false)
		ctx = wait
	}
	return s.share.Acquire(ctx, networkOf(ctx))
}
