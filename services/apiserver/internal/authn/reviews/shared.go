package reviews

import (
	"context"

	"binnacle/libs/authenticator"
	"binnacle/services/apiserver/internal/callout"
)

// maxAsked is how many tokens another server is asked about at a time.
const maxAsked = 1000

// shared asks another server about tokens. Clients share it by the network that they come from,
// as nobody knows yet who they are; tokens that others know wait for nothing here.
type shared struct {
	authenticator.Token
	share *callout.Share
}

// Shared bounds how many tokens an authenticator that asks another server has at a time, fairly
// among the networks that they come from.
func Shared(t authenticator.Token) authenticator.Token { return &shared{t, callout.NewShare(maxAsked)} }

// AuthenticateToken implements authenticator.Token.
func (s *shared) AuthenticateToken(ctx context.Context, token string, audiences []string) (*authenticator.Response, bool, error) {
	leave, err := s.enter(ctx)
	if err != nil {
		return nil, false, authenticator.Unavailable(err)
	}
	defer leave()
	return s.Token.AuthenticateToken(ctx, token, audiences)
}

// enter waits for a turn, as long as somebody waits for the review.
func (s *shared) enter(ctx context.Context) (leave func(), err error) {
	if f, ok := ctx.Value(flightKey{}).(*flight); ok {
		wait, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(f.awaited, cancel)()
		f.inLine.Store(true)
		defer f.inLine.Store(false)
		ctx = wait
	}
	return s.share.Enter(ctx, networkOf(ctx))
}
