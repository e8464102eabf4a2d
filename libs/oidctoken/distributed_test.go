package oidctoken_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"binnacle/libs/authenticator"
	"binnacle/libs/oidctoken"
	"binnacle/libs/oidctoken/oidctest"
)

const claimPath = "/claims"

// distributed returns claims that name a claim source for the groups.
func distributed(source map[string]any) map[string]any {
	return map[string]any{"_claim_names": map[string]string{"groups": "s"}, "_claim_sources": map[string]any{"s": source}}
}

// TestDistributedClaims checks tokens whose groups are in a claim source.
func TestDistributedClaims(t *testing.T) {
	issuer, other := oidctest.New(t), oidctest.New(t)
	a := initializedAuthenticator(t, issuer, bySubject)
	response := func(token string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(token)) }
	}
	groups := func(changes map[string]any) string {
		c := map[string]any{"groups": []string{"one", "two"}}
		for k, v := range changes {
			c[k] = v
		}
		return issuer.Token(c)
	}
	from := func(path string) map[string]any {
		return distributed(map[string]any{"endpoint": issuer.URL() + path, "access_token": "secret"})
	}
	here := from(claimPath)
	for name, test := range map[string]struct {
		claims   map[string]any
		response http.HandlerFunc
		want     []string
		err      string
	}{
		"groups": {claims: here, response: response(groups(nil)), want: []string{"g:one", "g:two"}},
		"one group": {
			claims:   here,
			response: response(groups(map[string]any{"groups": "one"})),
			want:     []string{"g:one"},
		},
		"line end after the token": {claims: here, response: response(groups(nil) + "\n"), want: []string{"g:one", "g:two"}},
		"the token has the claim": {
			claims: map[string]any{
				"groups":         "own",
				"_claim_names":   here["_claim_names"],
				"_claim_sources": here["_claim_sources"],
			},
			want: []string{"g:own"},
		},
		"another claim": {claims: map[string]any{
			"_claim_names":   map[string]string{"roles": "s"},
			"_claim_sources": here["_claim_sources"],
		}},
		"aggregated claim": {claims: distributed(map[string]any{"JWT": "x"})},
		"no sources": {claims: map[string]any{"_claim_names": map[string]string{"groups": "s"}},
			err: "source does not exist"},
		"names are not an object": {claims: map[string]any{"_claim_names": "groups"}, err: "unmarshal"},
		"with an access token": {
			claims:   here,
			response: requireAuthorization("Bearer secret", groups(nil)),
			want:     []string{"g:one", "g:two"},
		},
		"without an access token": {claims: distributed(map[string]any{"endpoint": issuer.URL() + claimPath}),
			response: requireAuthorization("", groups(nil)), want: []string{"g:one", "g:two"}},
		"an access token is missing": {claims: distributed(map[string]any{"endpoint": issuer.URL() + claimPath}),
			response: requireAuthorization("Bearer secret", groups(nil)), err: "status 401"},
		"not found":          {claims: from("/nope"), err: "status 404"},
		"source without TLS": {claims: distributed(map[string]any{"endpoint": "http://127.0.0.1:1/"}), err: "not an https URL"},
		"source of an unknown CA": {claims: distributed(map[string]any{"endpoint": "https://127.0.0.1:1/?key=secret"}),
			err: "request to claim source 127.0.0.1:1"},
		"redirect without TLS": {claims: here,
			response: http.RedirectHandler("http://127.0.0.1:1/", http.StatusFound).ServeHTTP, err: "want https"},
		"too long": {claims: here, response: response(strings.Repeat("x", 1<<20+1)), err: "more than 1048576 bytes"},
		"no token": {claims: here, response: response("hello"), err: "scheme"},
		"expired": {claims: here,
			response: response(groups(map[string]any{"exp": time.Now().Add(-time.Hour).Unix()})), err: "expired"},
		"not yet valid": {claims: here,
			response: response(groups(map[string]any{"nbf": time.Now().Add(2 * time.Minute).Unix()})), err: "nbf"},
		"another audience": {claims: here, response: response(groups(map[string]any{"aud": "x"})), err: "expected audience"},
		"another signature": {claims: here,
			response: response(other.Token(map[string]any{"iss": issuer.URL(), "groups": "one"})), err: "no key of the issuer"},
		"without the claim": {claims: here, response: response(issuer.Token(nil)), err: "lacks the claim"},
		"an issuer without keys": {claims: here,
			response: response(issuer.Token(map[string]any{"iss": "https://127.0.0.1:1", "groups": "one"})),
			err:      "not initialized",
		},
	} {
		t.Run(name, func(t *testing.T) {
			handlerFunc := test.response
			if handlerFunc == nil {
				handlerFunc = func(w http.ResponseWriter, r *http.Request) {
					t.Errorf("the claim source got %s %s, want no request", r.Method, r.URL)
					w.WriteHeader(http.StatusTeapot)
				}
			}
			issuer.Serve(claimPath, handlerFunc)
			resp, ok, err := a.AuthenticateToken(t.Context(), issuer.Token(test.claims), nil)
			switch {
			case test.err != "":
				if ok || err == nil || !strings.Contains(err.Error(), test.err) || strings.Contains(err.Error(), "secret") {
					t.Errorf("authenticated = %v, error: %v, want %q", ok, err, test.err)
				}
			case err != nil || !ok:
				t.Errorf("got authenticated: %t, %v, want true", ok, err)
			case !slices.Equal(resp.User.Groups, test.want):
				t.Errorf("groups %q, want %q", resp.User.Groups, test.want)
			}
		})
	}
}

// requireAuthorization returns a handler that returns a token to requests with the given
// Authorization header.
func requireAuthorization(authorization, token string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != authorization {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = w.Write([]byte(token))
	}
}

// TestDistributedClaimsOfAnotherIssuer checks that the keys of another issuer are found, and that
// the result expires with the claim token.
func TestDistributedClaimsOfAnotherIssuer(t *testing.T) {
	issuer, other := oidctest.New(t), oidctest.New(t)
	a := initializedAuthenticator(t, issuer, bySubject)
	end := time.Now().Add(time.Minute).Truncate(time.Second)
	token := other.Token(map[string]any{"groups": "one", "exp": end.Unix()})
	issuer.Serve(claimPath, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(token)) })
	r := authenticateEventually(t, a, issuer.Token(distributed(map[string]any{"endpoint": issuer.URL() + claimPath})))
	if !slices.Equal(r.User.Groups, []string{"g:one"}) || !r.Expires.Equal(end) {
		t.Errorf("groups %q until %v, want until %v", r.User.Groups, r.Expires, end)
	}
}

// TestSlowClaimSourceDoesNotDelayOtherHosts checks that requests to one host that does not respond
// leave room for requests to another host.
func TestSlowClaimSourceDoesNotDelayOtherHosts(t *testing.T) {
	issuer, slow := oidctest.New(t), oidctest.New(t)
	a := initializedAuthenticator(t, issuer, bySubject)
	const atOnce = 8 // half of what all hosts share
	arrived := make(chan struct{}, 10*atOnce)
	slow.Serve(claimPath, func(_ http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		<-r.Context().Done()
	})
	token := issuer.Token(map[string]any{"groups": "one"})
	issuer.Serve(claimPath, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(token)) })

	ctx, cancel := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	defer waiting.Wait()
	defer cancel()
	for range 5 * atOnce {
		waiting.Go(func() {
			_, _, _ = a.AuthenticateToken(ctx, issuer.Token(distributed(map[string]any{"endpoint": slow.URL() + claimPath})), nil)
		})
	}
	for range atOnce {
		<-arrived
	}

	ctx, cancelFast := context.WithTimeout(ctx, 30*time.Second)
	defer cancelFast()
	r, ok, err := a.AuthenticateToken(ctx, issuer.Token(distributed(map[string]any{"endpoint": issuer.URL() + claimPath})), nil)
	if !ok || !slices.Equal(r.User.Groups, []string{"g:one"}) {
		t.Errorf("another host: got authenticated = %v, %v, want true", ok, err)
	}
	if n := len(arrived); n > 0 {
		t.Errorf("slow host: got %d requests at a time, want at most %d", atOnce+n, atOnce)
	}
}

// TestDistributedClaimsOfManyIssuers uses more issuers of claim tokens than the provider tracks,
// and then the first one again.
func TestDistributedClaimsOfManyIssuers(t *testing.T) {
	issuer := oidctest.New(t)
	a := initializedAuthenticator(t, issuer, bySubject)
	first := oidctest.New(t)
	others := []*oidctest.Provider{first}
	for range 17 {
		others = append(others, oidctest.New(t))
	}
	for i, other := range append(others, first) {
		path, group := fmt.Sprintf("%s-%d", claimPath, i), fmt.Sprint("group ", i)
		token := other.Token(map[string]any{"groups": group})
		issuer.Serve(path, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(token)) })
		r := authenticateEventually(t, a, issuer.Token(distributed(map[string]any{"endpoint": issuer.URL() + path})))
		if !slices.Equal(r.User.Groups, []string{"g:" + group}) {
			t.Errorf("issuer %d: got groups %q, want g:%s", i, r.User.Groups, group)
		}
	}
}

// authenticateEventually returns the response for a token once the issuer of its claim token is
// initialized.
func authenticateEventually(t *testing.T, a *oidctoken.Authenticator, token string) authenticator.Response {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for {
		r, ok, err := a.AuthenticateToken(ctx, token, nil)
		if ok {
			return *r
		}
		if !strings.Contains(err.Error(), oidctoken.ErrNotInitialized.Error()) || ctx.Err() != nil {
			t.Fatal(err)
		}
	}
}
