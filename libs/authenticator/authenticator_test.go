package authenticator_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"binnacle/libs/authenticator"
)

// accepts returns an authenticator that authenticates every token as a user.
func accepts(user string) authenticator.Token {
	return authenticator.TokenFunc(func(context.Context, string, []string) (*authenticator.Response, bool, error) {
		return &authenticator.Response{User: authenticator.User{Name: user}, Expires: time.Unix(9, 0)}, true, nil
	})
}

// unknown returns an authenticator that knows no token.
func unknown() authenticator.Token { return rejects(nil) }

// rejects returns an authenticator that rejects every token with an error.
func rejects(err error) authenticator.Token {
	return authenticator.TokenFunc(func(context.Context, string, []string) (*authenticator.Response, bool, error) {
		return nil, false, err
	})
}

// TestUnionReturnsFirstUserOrAllErrors uses the first member that authenticates a token, and joins
// the errors of the others.
func TestUnionReturnsFirstUserOrAllErrors(t *testing.T) {
	bad, worse := errors.New("bad"), errors.New("worse")
	never := authenticator.TokenFunc(func(context.Context, string, []string) (*authenticator.Response, bool, error) {
		t.Error("the member after the deciding one was called, want only the members before it")
		return nil, false, nil
	})
	for name, test := range map[string]struct {
		union authenticator.Union
		token string
		user  string
		errs  []error
	}{
		"no user":              {union: authenticator.Union{unknown()}},
		"first member decides": {union: authenticator.Union{accepts("a"), never}, user: "a"},
		"an error does not decide": {
			union: authenticator.Union{rejects(bad), accepts("b")},
			user:  "b",
		},
		"all errors are returned": {
			union: authenticator.Union{rejects(bad), unknown(), rejects(worse)},
			errs:  []error{bad, worse},
		},
		"too long token reaches no member": {
			union: authenticator.Union{never},
			token: strings.Repeat("x", authenticator.MaxTokenBytes+1),
			errs:  []error{authenticator.ErrTooLong},
		},
	} {
		t.Run(name, func(t *testing.T) {
			response, ok, err := test.union.AuthenticateToken(t.Context(), test.token, nil)
			if ok != (test.user != "") || ok && response.User.Name != test.user {
				t.Errorf("user %v, %v, want %q", response, ok, test.user)
			}
			for _, want := range test.errs {
				if !errors.Is(err, want) {
					t.Errorf("error %v lacks %v, want error %v", err, want, want)
				}
			}
			if len(test.errs) == 0 && err != nil {
				t.Errorf("got error %v, want none", err)
			}
		})
	}
}

// TestForAudiencesAcceptsOnlyServerAudiences checks that a token is valid for the requested
// audiences that the server has. Without requested audiences it is valid.
func TestForAudiencesAcceptsOnlyServerAudiences(t *testing.T) {
	serverAudiences := []string{"api", "api2"}
	for name, test := range map[string]struct {
		requested, want []string
		ok              bool
	}{
		"no requested audience":  {ok: true},
		"some of the server":     {requested: []string{"api2", "other", "api"}, want: []string{"api2", "api"}, ok: true},
		"none of the server":     {requested: []string{"other"}},
		"duplicates are removed": {requested: []string{"api", "api"}, want: []string{"api"}, ok: true},
	} {
		t.Run(name, func(t *testing.T) {
			resp, ok, err := authenticator.ForAudiences(serverAudiences, accepts("a")).AuthenticateToken(t.Context(), "t", test.requested)
			if err != nil || ok != test.ok {
				t.Fatalf("got %v, %v, want %v", ok, err, test.ok)
			}
			if ok && (!slices.Equal(resp.Audiences, test.want) || resp.Expires.IsZero()) {
				t.Errorf("response %+v, want audiences %v and the expiry", resp, test.want)
			}
		})
	}
	if _, ok, err := authenticator.ForAudiences(serverAudiences, unknown()).AuthenticateToken(t.Context(), "t",
		serverAudiences); ok || err != nil {
		t.Errorf("unknown token: %v, %v, want false, no error", ok, err)
	}
	if _, ok, err := authenticator.ForAudiences(serverAudiences,
		rejects(errors.New("no"))).AuthenticateToken(t.Context(), "t", serverAudiences); ok || err == nil {
		t.Errorf("rejected token: %v, %v, want false, an error", ok, err)
	}
}

// TestUnreservedRejectsSuiteUsers checks that tokens whose user has a name or a group of the
// suite's services are rejected.
func TestUnreservedRejectsSuiteUsers(t *testing.T) {
	down := errors.New("down")
	for name, test := range map[string]struct {
		user authenticator.User
		ok   bool
	}{
		"any user":               {user: authenticator.User{Name: "alice", Groups: []string{"dev", "system:masters"}}, ok: true},
		"similar name and group": {user: authenticator.User{Name: "system:binnacle", Groups: []string{"system:binnacle:x"}}, ok: true},
		"name of a service":      {user: authenticator.User{Name: "system:binnacle:tokencleaner"}, ok: false},
		"group of the services":  {user: authenticator.User{Name: "alice", Groups: []string{"dev", "system:binnacle"}}, ok: false},
	} {
		member := authenticator.TokenFunc(func(context.Context, string, []string) (*authenticator.Response, bool, error) {
			return &authenticator.Response{User: test.user}, true, nil
		})
		response, ok, err := authenticator.Unreserved(member).AuthenticateToken(t.Context(), "t", nil)
		if ok != test.ok || (err == nil) != test.ok || ok && response.User.Name != test.user.Name || !ok && response != nil {
			t.Errorf("%s: got %+v, %t, %v, want authenticated: %t, as %v", name, response, ok, err, test.ok, test.user)
		}
	}
	if _, ok, err := authenticator.Unreserved(rejects(down)).AuthenticateToken(t.Context(), "t",
		nil); ok || !errors.Is(err, down) {
		t.Errorf("rejected token: %v, %v, want false, error %v", ok, err, down)
	}
}
