package authn

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"binnacle/libs/api"
	"binnacle/services/apiserver/internal/request"
)

// ErrInvalid tells that a credential was given and is not good. What is wrong
// with it is not told to the client.
var ErrInvalid = errors.New("invalid credentials")

// Authenticator finds the user of a request: nil when the request carries
// nothing that it understands, ErrInvalid (wrapped) when it carries something
// that is no good.
type Authenticator interface {
	Authenticate(r *http.Request) (*request.User, error)
}

// Review is what a token says.
type Review struct {
	Authenticated bool
	// User is in the group of the authenticated already.
	User      request.User
	Audiences []string
	Error     string
	// Warnings are for the client that uses the token.
	Warnings []string
	// Words are what the audit log tells of the token.
	Words map[string]string
}

// Tokens reviews bearer tokens. No audiences means the server's own. The review
// is shared and must not be changed; an error means that none could be made.
type Tokens interface {
	Review(ctx context.Context, token string, audiences []string) (*Review, error)
}

// Chain tries its members in order.
type Chain []Authenticator

// Authenticate returns the first user found, with the group of the
// authenticated; nil when no member knows anybody.
func (c Chain) Authenticate(r *http.Request) (*request.User, error) {
	var refused error
	for _, a := range c {
		u, err := a.Authenticate(r)
		if err != nil {
			refused = errors.Join(refused, err)
			continue
		}
		if u == nil {
			continue
		}
		if _, anonymous := a.(Anonymous); anonymous && refused != nil {
			continue
		}
		conceal(r.Header)
		return u, nil
	}
	return nil, refused
}

// conceal removes what tells or proves who somebody is from a request that goes on,
// whether it was looked at or not: servers that requests are carried on to take it for
// the word of this one.
func conceal(h http.Header) {
	h.Del("Authorization")
	dropTokens(h)
	for name := range h {
		if tellsUser(name) {
			delete(h, name)
		}
	}
}

// usualPrefix begins the headers in which proxies commonly tell the user.
const usualPrefix = "x-remote-"

// tellsUser knows those headers. Servers that hand headers on as variables do not tell
// - and _ apart.
func tellsUser(name string) bool {
	if len(name) < len(usualPrefix) || name[0] != 'X' && name[0] != 'x' {
		return false // as nearly all, without a copy
	}
	rest, usual := strings.CutPrefix(strings.ReplaceAll(strings.ToLower(name), "_", "-"), usualPrefix)
	return usual && (rest == "user" || rest == "uid" || rest == "group" || strings.HasPrefix(rest, "extra-"))
}

// Authenticated returns the user with the group of the authenticated, unless it
// is told already whether the user is.
func Authenticated(u *request.User) *request.User {
	if u.Name == api.UserAnonymous || u.InGroup(api.GroupAuthenticated) || u.InGroup(api.GroupUnauthenticated) {
		return u
	}
	out := *u
	out.Groups = append(append(make([]string, 0, len(u.Groups)+1), u.Groups...), api.GroupAuthenticated)
	return &out
}

// Anonymous knows everybody as the anonymous user.
type Anonymous struct {
	// Allowed tells the paths that may be asked for so; nil for all.
	Allowed func(path string) bool
}

var anonymous = request.User{Name: api.UserAnonymous, Groups: []string{api.GroupUnauthenticated}}

// Authenticate implements Authenticator.
func (a Anonymous) Authenticate(r *http.Request) (*request.User, error) {
	if a.Allowed != nil && !a.Allowed(r.URL.Path) {
		return nil, nil
	}
	return &anonymous, nil
}

// Bearer takes the token of the Authorization header to a reviewer.
type Bearer struct{ Tokens Tokens }

// Authenticate implements Authenticator.
func (b Bearer) Authenticate(r *http.Request) (*request.User, error) {
	scheme, rest, ok := strings.Cut(strings.TrimSpace(r.Header.Get("Authorization")), " ")
	if !ok || !strings.EqualFold(scheme, "bearer") {
		return nil, nil
	}
	token, _, _ := strings.Cut(rest, " ")
	if token == "" {
		request.Warn(r.Context(), extraSpace)
		return nil, nil
	}
	return userOf(r.Context(), b.Tokens, token)
}

// extraSpace warns that a header is ignored because more than one space stands
// before its token.
const extraSpace = "the provided Authorization header contains extra space before the bearer token, and is ignored"

// userOf is the user that a token speaks for.
func userOf(ctx context.Context, tokens Tokens, token string) (*request.User, error) {
	rev, err := tokens.Review(ctx, token, nil)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	request.SayOfToken(ctx, rev.Words)
	for _, text := range rev.Warnings {
		request.Warn(ctx, text)
	}
	if !rev.Authenticated {
		return nil, fmt.Errorf("%w: %s", ErrInvalid, rev.Error)
	}
	return &rev.User, nil
}

// NoTokens knows no token.
type NoTokens struct{}

// Review implements Tokens.
func (NoTokens) Review(context.Context, string, []string) (*Review, error) {
	return &Review{Error: UnknownToken}, nil
}

// UnknownToken is said of a token that nobody knows.
const UnknownToken = "invalid bearer token"
