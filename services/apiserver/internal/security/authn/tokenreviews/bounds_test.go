package tokenreviews_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"binnacle/libs/authenticator"
	"binnacle/libs/satoken"
	"binnacle/services/apiserver/internal/security/authn/tokenreviews"
)

// TestForgetDuringReviewPreventsCaching checks that a response from before a change of the reviewer's
// configuration is not cached.
func TestForgetDuringReviewPreventsCaching(t *testing.T) {
	fixture := newFixture(t, nil)
	started, answer := make(chan struct{}), make(chan struct{})
	var once sync.Once
	fixture.reviewer.resultOf = func(ctx context.Context, token string) (*authenticator.Response, bool, error) {
		once.Do(func() {
			close(started)
			<-answer
		})
		return reviewerByName(ctx, token)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		fixture.review("alice")
	}()
	<-started
	fixture.cache.Forget()
	close(answer)
	<-done
	fixture.review("alice")
	if fixture.reviewer.reviewsOf("alice") != 2 {
		t.Errorf("got %d reviews, want 2", fixture.reviewer.reviewsOf("alice"))
	}
}

// TestResponsesExpireBeforeTokens checks that a token is reviewed again after the TTL, even if it
// is valid for longer.
func TestResponsesExpireBeforeTokens(t *testing.T) {
	f := newFixture(t, func(c *tokenreviews.Config) { c.SuccessTTL = time.Hour })
	f.putBoundObjects()
	token := signToken(f.now, 3*time.Hour)
	f.awaitTrue("kept", func() bool { return f.isCached(token) })
	n := f.reviewer.reviewsOf(token)
	f.mu.Lock()
	f.now = f.now.Add(2 * time.Hour)
	f.mu.Unlock()
	f.review(token)
	if f.reviewer.reviewsOf(token) != n+1 {
		t.Error("review after the TTL: got a cached response, want another review")
	}
}

// TestSimilarNamesHaveNoDependencies checks that the dependencies of an opaque token follow only
// from user names of the exact forms.
func TestSimilarNamesHaveNoDependencies(t *testing.T) {
	fixture := newFixture(t, nil)
	for _, user := range []string{"abc123", "system:bootstrap:abc", "system:bootstrap:", "system:serviceaccount:ns"} {
		if !fixture.isCached(user) {
			t.Errorf("%s: got no cached result, want one", user)
		}
	}
	for _, user := range []string{"system:bootstrap:abc123", "system:serviceaccount:ns:a"} {
		n := fixture.reviewer.reviewsOf(user)
		for range 3 {
			fixture.awaitTrue("reviewed again", func() bool {
				fixture.review(user)
				return fixture.reviewer.reviewsOf(user) > n
			})
			n = fixture.reviewer.reviewsOf(user)
		}
	}
}

// TestUsesOfLegacyTokensAreRecorded checks that uses of valid legacy tokens are reported, with the secret of
// their own service account.
func TestUsesOfLegacyTokensAreRecorded(t *testing.T) {
	legacy, err := jwt.NewWithClaims(jwt.SigningMethodHS256, satoken.Claims{
		RegisteredClaims: jwt.RegisteredClaims{Issuer: satoken.LegacyIssuer},
		LegacyNamespace:  "ns",
		LegacySecretName: "s",
		LegacyName:       "a",
		LegacyUID:        "ua",
	}).SignedString([]byte("k"))
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		token, user string
		accepted    bool
		used        string // the recorded use, or ""
	}{
		"its own":       {token: legacy, user: "system:serviceaccount:ns:a", accepted: true, used: "ns/s"},
		"of another":    {token: legacy, user: "system:serviceaccount:ns:b", accepted: true, used: ""},
		"refused":       {token: legacy, user: "system:serviceaccount:ns:a", accepted: false, used: "ns/s refused"},
		"of no secret":  {token: bound(), user: "system:serviceaccount:ns:a", accepted: true, used: ""},
		"no user":       {token: "opaque", user: "", accepted: true, used: ""},
		"of opaque one": {token: "opaque", user: "system:serviceaccount:ns:a", accepted: true, used: ""},
	} {
		for _, report := range []bool{true, false} {
			used := make(chan string, 1)
			ended := make(chan struct{})
			f := newFixtureWithoutObjects(t, func(cfg *tokenreviews.Config) {
				if report {
					cfg.Legacy = legacyUses(used)
				}
				cfg.Now = nil
			})
			f.reviewer.resultOf = func(context.Context, string) (*authenticator.Response, bool, error) {
				defer close(ended)
				return &authenticator.Response{User: authenticator.User{Name: test.user}}, test.accepted, nil
			}
			review := f.review(test.token)
			<-ended
			if warned := len(review.Warnings) > 0; warned != (report && test.accepted && test.used != "") {
				t.Errorf("%s: got warnings %q, want some: %t", name, review.Warnings, report && test.accepted && test.used != "")
			}
			got := ""
			if report && test.used != "" {
				got = <-used
			} else if len(used) > 0 {
				got = <-used
			}
			if report && got != test.used {
				t.Errorf("%s: got %q, want %q", name, got, test.used)
			}
		}
	}
}

// legacyUses records the reported tokens.
type legacyUses chan string

func (l legacyUses) Warnings(context.Context, tokenreviews.LegacyToken) []string {
	return []string{"do not use this"}
}

func (l legacyUses) Used(_ context.Context, t tokenreviews.LegacyToken) {
	use := t.Namespace + "/" + t.Secret
	if !t.Accepted {
		use += " refused"
	}
	l <- use
}

// TestTokenIsAcceptedOnceAccountExists checks that a token that was rejected because its service account was
// missing is accepted soon after the account is created.
func TestTokenIsAcceptedOnceAccountExists(t *testing.T) {
	f := newFixture(t, nil)
	f.reviewer.resultOf = func(_ context.Context, token string) (*authenticator.Response, bool, error) {
		if _, err := f.objects.find(satoken.KindServiceAccount, "ns", "a"); err != nil {
			return nil, false, err
		}
		return &authenticator.Response{User: authenticator.User{Name: "system:serviceaccount:ns:a", UID: "ua"}}, true, nil
	}
	if f.review(bound()).Authenticated || !f.isCached(bound()) {
		t.Fatal("unknown token: got it authenticated, or its rejection uncached, want a cached rejection")
	}
	f.putObject(satoken.KindServiceAccount, "ns", "a", "ua")
	f.awaitTrue("known", func() bool { return f.review(bound()).Authenticated })
}
