// Package authenticator is the contract between holders of bearer tokens and their verifiers. The
// packages of token kinds (satoken, bootstraptoken, tokenfile and others) implement Token. The API
// server's front end and the token review service call it. It keeps no state.
//
// An authenticator has three results: the user is known (true, no error), the token is not of its
// kind (false, no error), or the token is of its kind and invalid (false, and an error). An error
// of Unavailable means that it could not decide: the request is not authenticated, but a retry may
// succeed. Errors never contain the token.
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

// MaxTokenBytes bounds a token. Longer ones are rejected before parsing.
const MaxTokenBytes = 64 << 10

// ErrTooLong reports a token longer than MaxTokenBytes.
var ErrTooLong = errors.New("token is too long")

// ErrUnavailable means that an authenticator could not decide, because a dependency does not
// respond or is not loaded.
var ErrUnavailable = errors.New("authentication is unavailable")

// Unavailable marks an error that does not concern the validity of the token.
func Unavailable(err error) error { return &unavailable{err} }

// unavailable is an error that matches ErrUnavailable and keeps its own text.
type unavailable struct{ error }

func (u *unavailable) Unwrap() []error { return []error{u.error, ErrUnavailable} }

// User is the user of a token.
type User struct {
	Name   string
	UID    string
	Groups []string
	Extra  map[string][]string
}

// ExtraCredentialID is the extra key of users with the id of their credential.
const ExtraCredentialID = "authentication." + api.LabelDomain + "/credential-id"

// TokenID returns the credential id for the claim "jti" of a JSON web token.
func TokenID(jti string) string { return "JTI=" + jti }

// Response is the result for a valid token. Audiences holds the requested audiences for which the
// token is valid. It is empty if the caller requested none and the kind of token has none.
type Response struct {
	User      User
	Audiences []string
	// Expires is the time from which the result is invalid; zero if the authenticator does not know
	// it. The result may become invalid earlier.
	Expires time.Time
	// AuditAnnotations are audit annotations about the token, by their keys.
	AuditAnnotations map[string]string
}

// RejectedError is the error for a rejected token with audit annotations.
type RejectedError struct {
	error
	// AuditAnnotations are as in Response.
	AuditAnnotations map[string]string
}

// Reject returns a RejectedError.
func Reject(reason error, annotations map[string]string) error {
	return &RejectedError{reason, annotations}
}

// Unwrap supports errors.Is.
func (r *RejectedError) Unwrap() error { return r.error }

// AuditAnnotationsOf returns the audit annotations of an error of a Token.
func AuditAnnotationsOf(err error) map[string]string {
	var aggregate utilerrors.Aggregate
	if errors.As(err, &aggregate) {
		for _, err := range aggregate.Errors() {
			if annotations := AuditAnnotationsOf(err); annotations != nil {
				return annotations
			}
		}
	}
	if rejected := new(RejectedError); errors.As(err, &rejected) {
		return rejected.AuditAnnotations
	}
	return nil
}

// Token authenticates one kind of bearer token for one of the audiences, which the caller requests.
// No audiences means that any will do. Implementations are safe for concurrent use and do not keep
// the token.
type Token interface {
	AuthenticateToken(ctx context.Context, token string, audiences []string) (*Response, bool, error)
}

// TokenFunc adapts a function to Token.
type TokenFunc func(ctx context.Context, token string, audiences []string) (*Response, bool, error)

// AuthenticateToken implements Token.
func (f TokenFunc) AuthenticateToken(ctx context.Context, token string, audiences []string) (*Response, bool, error) {
	return f(ctx, token, audiences)
}

// Union calls its members in order, until one authenticates the token. If none does, it returns the
// errors of all members.
type Union []Token

// AuthenticateToken implements Token.
func (u Union) AuthenticateToken(ctx context.Context, token string, audiences []string) (*Response, bool, error) {
	if len(token) > MaxTokenBytes {
		return nil, false, ErrTooLong
	}
	var errs []error
	for _, member := range u {
		resp, ok, err := member.AuthenticateToken(ctx, token, audiences)
		switch {
		case err != nil:
			errs = append(errs, err)
		case ok:
			return resp, true, nil
		}
	}
	return nil, false, utilerrors.NewAggregate(errs)
}

// ForAudiences wraps an authenticator that does not support audiences: its tokens are valid for the
// server's audiences only. If the caller requests audiences, one of them must be among the
// server's.
func ForAudiences(serverAudiences []string, t Token) Token {
	return &audienceAdder{serverAudiences: serverAudiences, token: t}
}

// audienceAdder adds audiences to an authenticator that does not check them.
type audienceAdder struct {
	serverAudiences []string
	token           Token
}

func (a *audienceAdder) AuthenticateToken(ctx context.Context, token string, audiences []string) (*Response, bool, error) {
	if len(audiences) == 0 {
		return a.token.AuthenticateToken(ctx, token, nil)
	}
	common := Intersect(audiences, a.serverAudiences)
	if len(common) == 0 {
		return nil, false, nil
	}
	response, ok, err := a.token.AuthenticateToken(ctx, token, nil)
	if err != nil || !ok {
		return nil, false, err
	}
	return &Response{User: response.User, Audiences: common, Expires: response.Expires}, true, nil
}

// Unreserved wraps an authenticator so that it rejects users that are the suite's own services.
// These authenticate only by certificates: a provider, a service or a file that claimed to be one
// would have its permissions.
func Unreserved(t Token) Token { return &reservedUserRejecter{t} }

// reservedUserRejecter is the Token that Unreserved returns.
type reservedUserRejecter struct{ token Token }

func (u *reservedUserRejecter) AuthenticateToken(ctx context.Context, token string, audiences []string) (*Response, bool, error) {
	response, ok, err := u.token.AuthenticateToken(ctx, token, audiences)
	if ok && api.IsSuite(response.User.Name, response.User.Groups) {
		return nil, false, fmt.Errorf("user %q: names that begin with %s and the group %s are reserved for the suite's own services", response.User.Name, api.UserSuitePrefix, api.GroupSuite)
	}
	return response, ok, err
}

// Intersect returns the members of requested that are in available, in the order of requested.
func Intersect(requested, available []string) []string {
	var common []string
	for _, value := range requested {
		if slices.Contains(available, value) && !slices.Contains(common, value) {
			common = append(common, value)
		}
	}
	return common
}
