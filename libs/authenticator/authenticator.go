// Package authenticator is the contract between whoever holds a bearer token and
// whoever knows what it is worth. The packages of token kinds (satoken,
// bootstraptoken, tokenfile and others) implement Token; the API server's front
// end and the token review service call it. It keeps no state.
//
// An authenticator is in one of three minds about a token: it knows the user
// (true, no error), the token is not of its kind (false, no error), or the token
// is of its kind and no good (false, and an error). An error made by Unavailable
// means that it could not make up its mind: nobody is let in, but the next try may
// end differently. Errors never hold the token.
package authenticator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"binnacle/libs/api"
)

// MaxTokenBytes bounds a token. Longer ones are refused before any of it is
// parsed.
const MaxTokenBytes = 64 << 10

// ErrTooLong tells of a token longer than MaxTokenBytes.
var ErrTooLong = errors.New("token is too long")

// ErrUnavailable tells that an authenticator could not decide, because what it
// needs for that does not answer or has not been loaded.
var ErrUnavailable = errors.New("authentication is unavailable")

// Unavailable marks an error as one that says nothing about the token.
func Unavailable(err error) error { return &unavailable{err} }

type unavailable struct{ error }

func (u *unavailable) Unwrap() []error { return []error{u.error, ErrUnavailable} }

// User is who a token speaks for.
type User struct {
	Name   string
	UID    string
	Groups []string
	Extra  map[string][]string
}

// ExtraCredentialID is the extra key of users under which the credential is named
// that they came with.
const ExtraCredentialID = "authentication." + api.LabelDomain + "/credential-id"

// TokenID is how the id of a JSON web token, its claim "jti", names it as a
// credential.
func TokenID(jti string) string { return "JTI=" + jti }

// Response is what a good token says. Audiences are those of the asked that the
// token is good for; empty where the asker named none and the kind of token
// knows none.
type Response struct {
	User      User
	Audiences []string
	// Expires is when the answer ceases to be true at the latest, as far as the
	// authenticator knows; zero when it does not.
	Expires time.Time
	// Words are what an audit log should tell of the token, by the keys of its annotations.
	Words map[string]string
}

// Refused is why a token is refused of which an audit log should tell something.
type Refused struct {
	error
	// Words are as those of a Response.
	Words map[string]string
}

// Refuse makes a Refused.
func Refuse(why error, words map[string]string) error { return &Refused{why, words} }

// Unwrap serves errors.Is.
func (r *Refused) Unwrap() error { return r.error }

// WordsOf are those of an error of a Token.
func WordsOf(err error) map[string]string {
	var all utilerrors.Aggregate
	if errors.As(err, &all) {
		for _, err := range all.Errors() {
			if words := WordsOf(err); words != nil {
				return words
			}
		}
	}
	if r := new(Refused); errors.As(err, &r) {
		return r.Words
	}
	return nil
}

// Token authenticates one kind of bearer token for one of the audiences, which
// are the asker's; none means that the asker does not care. Implementations are
// safe for concurrent use and do not keep the token.
type Token interface {
	AuthenticateToken(ctx context.Context, token string, audiences []string) (*Response, bool, error)
}

// TokenFunc makes an authenticator of a function.
type TokenFunc func(ctx context.Context, token string, audiences []string) (*Response, bool, error)

// AuthenticateToken implements Token.
func (f TokenFunc) AuthenticateToken(ctx context.Context, token string, audiences []string) (*Response, bool, error) {
	return f(ctx, token, audiences)
}

// Union asks its members in order; the first that knows the user decides. What
// others say against the token counts only when none does.
type Union []Token

// AuthenticateToken implements Token.
func (u Union) AuthenticateToken(ctx context.Context, token string, audiences []string) (*Response, bool, error) {
	if len(token) > MaxTokenBytes {
		return nil, false, ErrTooLong
	}
	var errs []error
	for _, member := range u {
		r, ok, err := member.AuthenticateToken(ctx, token, audiences)
		switch {
		case err != nil:
			errs = append(errs, err)
		case ok:
			return r, true, nil
		}
	}
	return nil, false, utilerrors.NewAggregate(errs)
}

// ForAudiences makes an authenticator that knows nothing of audiences one of the
// server's own: its tokens are good for the server's audiences alone. Where the
// asker names audiences, one of them must be among the server's.
func ForAudiences(own []string, t Token) Token { return &agnostic{own: own, token: t} }

type agnostic struct {
	own   []string
	token Token
}

func (a *agnostic) AuthenticateToken(ctx context.Context, token string, audiences []string) (*Response, bool, error) {
	if len(audiences) == 0 {
		return a.token.AuthenticateToken(ctx, token, nil)
	}
	both := Intersect(audiences, a.own)
	if len(both) == 0 {
		return nil, false, nil
	}
	r, ok, err := a.token.AuthenticateToken(ctx, token, nil)
	if err != nil || !ok {
		return nil, false, err
	}
	return &Response{User: r.User, Audiences: both, Expires: r.Expires}, true, nil
}

// Unreserved makes an authenticator that knows nobody as one of the suite's own
// services, which are known by their certificates alone: a provider, a service or a
// file that claimed to be one would have its permissions.
func Unreserved(t Token) Token { return &unreserved{t} }

type unreserved struct{ token Token }

func (u *unreserved) AuthenticateToken(ctx context.Context, token string, audiences []string) (*Response, bool, error) {
	r, ok, err := u.token.AuthenticateToken(ctx, token, audiences)
	if ok && api.IsSuite(r.User.Name, r.User.Groups) {
		return nil, false, fmt.Errorf("user %q: names that begin with %s and the group %s are reserved for the suite's own services", r.User.Name, api.UserSuitePrefix, api.GroupSuite)
	}
	return r, ok, err
}

// Intersect returns the members of asked that are in own, in the order of asked.
func Intersect(asked, own []string) []string {
	var both []string
	for _, a := range asked {
		if slices.Contains(own, a) && !slices.Contains(both, a) {
			both = append(both, a)
		}
	}
	return both
}
