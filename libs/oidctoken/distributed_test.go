package oidctoken_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
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

// TestGroupsAreReadFromClaimSource checks tokens whose groups are in a claim source.
func TestGroupsAreReadFromClaimSource(t *testing.T) {
	issuer, otherIssuer := oidctest.New(t), oidctest.New(t)
	tokens := initializedAuthenticator(t, issuer, bySubject)
	respondWith := func(token string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(token)) }
	}
	claimToken := func(changes map[string]any) string {
		c := map[string]any{"groups": []string{"one", "two"}}
		for k, v := range changes {
			c[k] = v
		}
		return issuer.Token(c)
	}
	claimsFrom := func(path string) map[string]any {
		return distributed(map[string]any{"endpoint": issuer.URL() + path, "access_token": "secret"})
	}
	fromSource := claimsFrom(claimPath)
	for name, test := range map[string]struct {
		claims   map[string]any
		response http.HandlerFunc
		want     []string
		err      string
	}{
		"groups": {claims: fromSource, response: respondWith(claimToken(nil)), want: []string{"g:one", "g:two"}},
		"one group": {
			claims:   fromSource,
			response: respondWith(claimToken(map[string]any{"groups": "one"})),
			want:     []string{"g:one"},
		},
		"line end after the token": {claims: fromSource, response: respondWith(claimToken(nil) + "\n"), want: []string{"g:one", "g:two"}},
		"claim in the token itself": {
			claims: map[string]any{
				"groups":         "own",
				"_claim_names":   fromSource["_claim_names"],
				"_claim_sources": fromSource["_claim_sources"],
			},
			want: []string{"g:own"},
		},
		"source of another claim": {claims: map[string]any{
			"_claim_names":   map[string]string{"roles": "s"},
			"_claim_sources": fromSource["_claim_sources"],
		}},
		"aggregated claim": {claims: distributed(map[string]any{"JWT": "x"})},
		"no sources": {claims: map[string]any{"_claim_names": map[string]string{"groups": "s"}},
			err: "source does not exist"},
		"names are not an object": {claims: map[string]any{"_claim_names": "groups"}, err: "unmarshal"},
		"with an access token": {
			claims:   fromSource,
			response: requireAuthorization("Bearer secret", claimToken(nil)),
			want:     []string{"g:one", "g:two"},
		},
		"without an access token": {claims: distributed(map[string]any{"endpoint": issuer.URL() + claimPath}),
			response: requireAuthorization("", claimToken(nil)), want: []string{"g:one", "g:two"}},
		"an access token is missing": {claims: distributed(map[string]any{"endpoint": issuer.URL() + claimPath}),
			response: requireAuthorization("Bearer secret", claimToken(nil)), err: "status 401"},
		"source returns 404": {claims: claimsFrom("/nope"), err: "status 404"},
		"source without TLS": {claims: distributed(map[string]any{"endpoint": "http://127.0.0.1:1/"}), err: "not an https URL"},
		"source of an unknown CA": {claims: distributed(map[string]any{"endpoint": "https://127.0.0.1:1/?key=secret"}),
			err: "request to claim source 127.0.0.1:1"},
		"redirect without TLS": {claims: fromSource,
			response: http.RedirectHandler("http://127.0.0.1:1/", http.StatusFound).ServeHTTP, err: "want https"},
		"response over the limit": {claims: fromSource, response: respondWith(strings.Repeat("x", 1<<20+1)), err: "more than 1048576 bytes"},
		"response is not a token": {claims: fromSource, response: respondWith("hello"), err: "scheme"},
		"expired claim token": {claims: fromSource,
			response: respondWith(claimToken(map[string]any{"exp": time.Now().Add(-time.Hour).Unix()})), err: "expired"},
		"claim token not yet valid": {claims: fromSource,
			response: respondWith(claimToken(map[string]any{"nbf": time.Now().Add(2 * time.Minute).Unix()})), err: "nbf"},
		"claim token for another audience": {claims: fromSource, response: respondWith(claimToken(map[string]any{"aud": "x"})), err: "expected audience"},
		"claim token signed by another issuer": {claims: fromSource,
			response: respondWith(otherIssuer.Token(map[string]any{"iss": issuer.URL(), "groups": "one"})), err: "no key of the issuer"},
		"claim token without the claim": {claims: fromSource, response: respondWith(issuer.Token(nil)), err: "lacks the claim"},
		"claim issuer without keys": {claims: fromSource,
			response: respondWith(issuer.Token(map[string]any{"iss": "https://127.0.0.1:1", "groups": "one"})),
			err:      "not initialized",
		},
	} {
		t.Run(name, func(t *testing.T) {
			handler := test.response
			if handler == nil {
				handler = func(w http.ResponseWriter, r *http.Request) {
					t.Errorf("the claim source got %s %s, want no request", r.Method, r.URL)
					w.WriteHeader(http.StatusTeapot)
				}
			}
			issuer.Serve(claimPath, handler)
			resp, ok, err := tokens.AuthenticateToken(t.Context(), issuer.Token(test.claims), nil)
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

// TestClaimTokenOfAnotherIssuerIsVerified checks that the keys of another issuer are found, and that
// the result expires with the claim token.
func TestClaimTokenOfAnotherIssuerIsVerified(t *testing.T) {
	issuer, claimIssuer := oidctest.New(t), oidctest.New(t)
	tokens := initializedAuthenticator(t, issuer, bySubject)
	expiry := time.Now().Add(time.Minute).Truncate(time.Second)
	token := claimIssuer.Token(map[string]any{"groups": "one", "exp": expiry.Unix()})
	issuer.Serve(claimPath, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(token)) })
	response := authenticateEventually(t, tokens, issuer.Token(distributed(map[string]any{"endpoint": issuer.URL() + claimPath})))
	if !slices.Equal(response.User.Groups, []string{"g:one"}) || !response.Expires.Equal(expiry) {
		t.Errorf("groups %q until %v, want until %v", response.User.Groups, response.Expires, expiry)
	}
}

// TestSlowClaimSourceDoesNotDelayOtherHosts checks that requests to one host that does not respond
// leave room for requests to another host.
func TestSlowClaimSourceDoesNotDelayOtherHosts(t *testing.T) {
	issuer, slow := oidctest.New(t), oidctest.New(t)
	tokens := initializedAuthenticator(t, issuer, bySubject)
	const atOnce = 8 // half of what all hosts share
	arrived := make(chan struct{}, 10*atOnce)
	slow.Serve(claimPath, func(_ http.ResponseWriter, response *http.Request) {
		arrived <- struct{}{}
		<-response.Context().Done()
	})
	token := issuer.Token(map[string]any{"groups": "one"})
	issuer.Serve(claimPath, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(token)) })

	ctx, cancel := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	defer waiting.Wait()
	defer cancel()
	for range 5 * atOnce {
		waiting.Go(func() {
			_, _, _ = tokens.AuthenticateToken(ctx, issuer.Token(distributed(map[string]any{"endpoint": slow.URL() + claimPath})), nil)
		})
	}
	for range atOnce {
		<-arrived
	}

	ctx, cancelFast := context.WithTimeout(ctx, 30*time.Second)
	defer cancelFast()
	response, ok, err := tokens.AuthenticateToken(ctx, issuer.Token(distributed(map[string]any{"endpoint": issuer.URL() + claimPath})), nil)
	if !ok || !slices.Equal(response.User.Groups, []string{"g:one"}) {
		t.Errorf("another host: got authenticated = %v, %v, want true", ok, err)
	}
	if n := len(arrived); n > 0 {
		t.Errorf("slow host: got %d requests at a time, want at most %d", atOnce+n, atOnce)
	}
}

// TestEvictedClaimIssuerIsUsedAgain uses more issuers of claim tokens than the provider tracks,
// and then the first one again.
func TestEvictedClaimIssuerIsUsedAgain(t *testing.T) {
	issuer := oidctest.New(t)
	tokens := initializedAuthenticator(t, issuer, bySubject)
	first := oidctest.New(t)
	claimIssuers := []*oidctest.Provider{first}
	for range 17 {
		claimIssuers = append(claimIssuers, oidctest.New(t))
	}
	for i, claimIssuer := range append(claimIssuers, first) {
		path, group := fmt.Sprintf("%s-%d", claimPath, i), fmt.Sprint("group ", i)
		token := claimIssuer.Token(map[string]any{"groups": group})
		issuer.Serve(path, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(token)) })
		response := authenticateEventually(t, tokens, issuer.Token(distributed(map[string]any{"endpoint": issuer.URL() + path})))
		if !slices.Equal(response.User.Groups, []string{"g:" + group}) {
			t.Errorf("issuer %d: got groups %q, want g:%s", i, response.User.Groups, group)
		}
	}
}

// TestClaimSourceDoesNotEvictIssuersOfOtherHosts checks that a source whose claim tokens name many
// issuers leaves the issuers of other sources initialized.
func TestClaimSourceDoesNotEvictIssuersOfOtherHosts(t *testing.T) {
	issuer, source, other := oidctest.New(t), oidctest.New(t), oidctest.New(t)
	tokens := initializedAuthenticator(t, issuer, bySubject)
	claimToken := source.Token(map[string]any{"groups": "one"})
	source.Serve(claimPath, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(claimToken)) })
	token := issuer.Token(distributed(map[string]any{"endpoint": source.URL() + claimPath}))
	authenticateEventually(t, tokens, token)

	var served atomic.Int32
	other.Serve(claimPath, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(other.Token(map[string]any{"iss": fmt.Sprintf("https://127.0.0.1:1/%d", served.Add(1)), "groups": "one"})))
	})
	const issuers = 100
	for range issuers {
		_, ok, err := tokens.AuthenticateToken(t.Context(), issuer.Token(distributed(map[string]any{"endpoint": other.URL() + claimPath})), nil)
		if ok || !errors.Is(err, oidctoken.ErrNotInitialized) {
			t.Fatalf("claim token of an unreachable issuer: got authenticated: %t, %v, want %v", ok, err, oidctoken.ErrNotInitialized)
		}
	}
	response, ok, err := tokens.AuthenticateToken(t.Context(), token, nil)
	if !ok || !slices.Equal(response.User.Groups, []string{"g:one"}) {
		t.Errorf("issuer of the first source: got authenticated: %t, %v, want group g:one", ok, err)
	}
}

// authenticateEventually returns the response for a token once the issuer of its claim token is
// initialized.
func authenticateEventually(t *testing.T, tokens *oidctoken.Authenticator, token string) authenticator.Response {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for {
		response, ok, err := tokens.AuthenticateToken(ctx, token, nil)
		if ok {
			return *response
		}
		if !strings.Contains(err.Error(), oidctoken.ErrNotInitialized.Error()) || ctx.Err() != nil {
			t.Fatal(err)
		}
	}
}
