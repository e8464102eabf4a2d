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

// ErrInvalid means that a credential was given but is invalid. The client does not learn the
// reason.
var ErrInvalid = errors.New("invalid credentials")

// Authenticator authenticates a request. It returns the user, nil if the request carries no
// credential that it handles, or ErrInvalid (wrapped) if it carries an invalid one.
type Authenticator interface {
	Authenticate(r *http.Request) (*request.User, error)
}

// Review is the result of a token review.
type Review struct {
	Authenticated bool
	// User includes the group of authenticated users.
	User      request.User
	Audiences []string
	Error     string
	// Warnings are sent to the client that uses the token.
	Warnings []string
	// AuditAnnotations are audit annotations about the token.
	AuditAnnotations map[string]string
}

// Tokens reviews bearer tokens. Without audiences, a token must be valid for the server's
// audiences. The review is shared and must not be changed. An error means that the review failed.
type Tokens interface {
	Review(ctx context.Context, token string, audiences []string) (*Review, error)
}

// Chain tries its members in order. The first one that finds a user decides.
type Chain []Authenticator

// Authenticate returns the first user found, with the group of authenticated users. It returns nil
// if no member authenticates the request.
func (c Chain) Authenticate(r *http.Request) (*request.User, error) {
	var rejections error
	for _, a := range c {
		user, err := a.Authenticate(r)
		if err != nil {
			rejections = errors.Join(rejections, err)
			continue
		}
		if user == nil {
			continue
		}
		if _, anonymous := a.(Anonymous); anonymous && rejections != nil {
			continue
		}
		removeCredentials(r.Header)
		return user, nil
	}
	return nil, rejections
}

// removeCredentials removes identity and credentials from the headers of a request that is
// forwarded, regardless of whether they were used. Backends would otherwise trust them as set by
// this server.
func removeCredentials(h http.Header) {
	h.Del("Authorization")
	removeProtocolTokens(h)
	for name := range h {
		if isUserHeader(name) {
			delete(h, name)
		}
	}
}

// userHeaderPrefix is the prefix of the headers in which proxies commonly pass the user.
const userHeaderPrefix = "x-remote-"

// isUserHeader reports whether a proxy commonly passes the user in a header. It treats _ as -,
// because servers that pass headers as variables do not distinguish them.
func isUserHeader(name string) bool {
	if len(name) < len(userHeaderPrefix) || name[0] != 'X' && name[0] != 'x' {
		return false // the common case, without a copy
	}
	normalized := strings.ReplaceAll(strings.ToLower(name), "_", "-")
	attribute, hasPrefix := strings.CutPrefix(normalized, userHeaderPrefix)
	return hasPrefix && (attribute == "user" || attribute == "uid" || attribute == "group" || strings.HasPrefix(attribute, "extra-"))
}

// Authenticated returns the user with the group of authenticated users. It returns an anonymous
// user, and a user that already has the group of authenticated or of unauthenticated users,
// unchanged.
func Authenticated(user *request.User) *request.User {
	if user.Name == api.UserAnonymous || user.InGroup(api.GroupAuthenticated) || user.InGroup(api.GroupUnauthenticated) {
		return user
	}
	out := *user
	out.Groups = append(append(make([]string, 0, len(user.Groups)+1), user.Groups...), api.GroupAuthenticated)
	return &out
}

// Anonymous authenticates every request as the anonymous user.
type Anonymous struct {
	// Allowed reports whether anonymous requests for a path are allowed; nil allows all.
	Allowed func(path string) bool
}

// anonymousUser is the user of anonymous requests.
var anonymousUser = request.User{Name: api.UserAnonymous, Groups: []string{api.GroupUnauthenticated}}

// Authenticate implements Authenticator.
func (a Anonymous) Authenticate(r *http.Request) (*request.User, error) {
	if a.Allowed != nil && !a.Allowed(r.URL.Path) {
		return nil, nil
	}
	return &anonymousUser, nil
}

// Bearer passes the token of the Authorization header to a reviewer.
type Bearer struct{ Tokens Tokens }

// Authenticate implements Authenticator.
func (b Bearer) Authenticate(r *http.Request) (*request.User, error) {
	scheme, credentials, ok := strings.Cut(strings.TrimSpace(r.Header.Get("Authorization")), " ")
	if !ok || !strings.EqualFold(scheme, "bearer") {
		return nil, nil
	}
	token, _, _ := strings.Cut(credentials, " ")
	if token == "" {
		request.Warn(r.Context(), extraSpaceWarning)
		return nil, nil
	}
	return reviewToken(r.Context(), b.Tokens, token)
}

// extraSpaceWarning warns that a header with more than one space before its token is ignored.
const extraSpaceWarning = "the provided Authorization header contains extra space before the bearer token, and is ignored"

// reviewToken returns the user of a token. It sends the warnings of the review to the client.
func reviewToken(ctx context.Context, tokens Tokens, token string) (*request.User, error) {
	review, err := tokens.Review(ctx, token, nil)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if len(review.AuditAnnotations) > 0 {
		request.FromContext(ctx).TokenAnnotations = review.AuditAnnotations
	}
	for _, text := range review.Warnings {
		request.Warn(ctx, text)
	}
	if !review.Authenticated {
		return nil, fmt.Errorf("%w: %s", ErrInvalid, review.Error)
	}
	return &review.User, nil
}

// NoTokens rejects every token.
type NoTokens struct{}

// Review implements Tokens.
func (NoTokens) Review(context.Context, string, []string) (*Review, error) {
	return &Review{Error: UnknownToken}, nil
}

// UnknownToken is the error for an unknown token.
const UnknownToken = "invalid bearer token"
