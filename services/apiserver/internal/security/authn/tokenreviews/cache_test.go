package tokenreviews_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"binnacle/libs/authenticator"
	"binnacle/libs/satoken"
	"binnacle/services/apiserver/internal/security/authn"
	"binnacle/services/apiserver/internal/security/authn/tokenreviews"
)

// bound is a real token that is bound to a pod and a secret.
var bound = sync.OnceValue(func() string { return signToken(time.Now(), time.Hour) })

func signToken(issuedAt time.Time, life time.Duration) string {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	s, err := satoken.NewSigner("https://issuer", key)
	if err != nil {
		panic(err)
	}
	token, _, err := s.Sign(satoken.Request{
		Binding: satoken.Binding{
			Namespace:      "ns",
			ServiceAccount: satoken.Ref{Name: "a", UID: "ua"},
			Pod:            &satoken.Ref{Name: "p", UID: "up"},
			Secret:         &satoken.Ref{Name: "s", UID: "us"},
		},
		IssuedAt: issuedAt,
		Lifetime: life,
	})
	if err != nil {
		panic(err)
	}
	return token
}

// putBoundObjects stores the objects that the bound token depends on.
func (f *fixture) putBoundObjects() {
	f.putObject(satoken.KindServiceAccount, "ns", "a", "ua")
	f.putObject(satoken.KindPod, "ns", "p", "up")
	f.putObject(satoken.KindSecret, "ns", "s", "us")
}

// TestResponsesAreCached checks that accepted and rejected tokens are cached by token and
// audiences, and undecided reviews are not.
func TestResponsesAreCached(t *testing.T) {
	fixture := newFixture(t, nil)
	if rev := fixture.review("alice"); !rev.Authenticated || rev.User.Name != "alice" || !rev.User.InGroup("system:authenticated") {
		t.Errorf("got %+v, want alice in system:authenticated", rev)
	}
	if !fixture.isCached("alice") || fixture.reviewer.reviewsOf("alice") != 1 {
		t.Errorf("got %d reviews, want 1 and a cached result", fixture.reviewer.reviewsOf("alice"))
	}
	fixture.review("alice", "api")
	if n := fixture.reviewer.reviewsOf("alice"); n != 1 {
		t.Errorf("the server's own audience has a separate cache entry: got %d reviews, want 1", n)
	}
	fixture.review("alice", "other")
	if n := fixture.reviewer.reviewsOf("alice"); n != 2 {
		t.Errorf("other audiences share a cache entry: got %d reviews, want 2", n)
	}
	if rev := fixture.review("bad"); rev.Authenticated || rev.Error != "no good" || !fixture.isCached("bad") {
		t.Errorf("rejected token: got %+v, want error \"no good\" and a cached result", rev)
	}
	if _, err := fixture.cache.Review(t.Context(), "down", nil); !errors.Is(err, authenticator.ErrUnavailable) || fixture.isCached("down") {
		t.Errorf("unavailable reviewer: got %v, want authenticator.ErrUnavailable and no cached result", err)
	}
}

// TestNoCacheWithoutEvents checks that nothing is cached while the events of objects are not
// followed.
func TestNoCacheWithoutEvents(t *testing.T) {
	f := newFixtureWithoutObjects(t, nil)
	if f.isCached("alice") {
		t.Error("without events: got a cached response, want none")
	}
}

// TestRejectionHidesTokenAndBoundsItsSize checks that the errors for rejected tokens do not contain the
// token, and that a too long token is not reviewed.
func TestRejectionHidesTokenAndBoundsItsSize(t *testing.T) {
	fixture := newFixtureWithoutObjects(t, nil)
	fixture.reviewer.resultOf = func(context.Context, string) (*authenticator.Response, bool, error) { return nil, false, nil }
	if rev := fixture.review("x"); rev.Authenticated || rev.Error != authn.UnknownToken {
		t.Errorf("got %+v, want no user and error %v", rev, authn.UnknownToken)
	}
	fixture.reviewer.resultOf = func(_ context.Context, token string) (*authenticator.Response, bool, error) {
		return nil, false, errors.New("I do not know " + token)
	}
	if rev := fixture.review("secret"); rev.Authenticated || rev.Error != "I do not know <token>" {
		t.Errorf("got %+v, want no user and error \"I do not know <token>\"", rev)
	}
	long := strings.Repeat("x", authenticator.MaxTokenBytes+1)
	if rev := fixture.review(long); rev.Authenticated || rev.Error == "" || fixture.reviewer.reviewsOf(long) != 0 {
		t.Errorf("huge token: got %+v, want no user, an error and no review", rev)
	}
}

// TestConcurrentReviewsShareOneFlight checks that concurrent requests with the same token share one
// review, which continues when one of them is canceled.
func TestConcurrentReviewsShareOneFlight(t *testing.T) {
	fixture := newFixture(t, nil)
	started, respond := make(chan struct{}), make(chan struct{})
	fixture.reviewer.resultOf = func(ctx context.Context, token string) (*authenticator.Response, bool, error) {
		close(started)
		<-respond
		return reviewerByName(ctx, token)
	}
	canceledCtx, cancel := context.WithCancel(t.Context())
	canceled := make(chan error, 1)
	go func() {
		_, err := fixture.cache.Review(canceledCtx, "alice", nil)
		canceled <- err
	}()
	<-started
	var reviews sync.WaitGroup
	for range 50 {
		reviews.Go(func() {
			if rev, err := fixture.cache.Review(t.Context(), "alice", nil); err != nil || !rev.Authenticated {
				t.Errorf("got %+v, %v; want no error, true", rev, err)
			}
		})
	}
	cancel() // the flight does not depend on the first request
	if err := <-canceled; !errors.Is(err, context.Canceled) {
		t.Errorf("canceled request: got %v, want %v", err, context.Canceled)
	}
	close(respond)
	reviews.Wait()
	if n := fixture.reviewer.reviewsOf("alice"); n != 1 {
		t.Errorf("got %d reviews, want 1", n)
	}
}

// TestReviewEndsAfterTimeout checks that a review ends after the configured time.
func TestReviewEndsAfterTimeout(t *testing.T) {
	f := newFixtureWithoutObjects(t, func(c *tokenreviews.Config) { c.Timeout = 10 * time.Millisecond })
	f.reviewer.resultOf = func(ctx context.Context, _ string) (*authenticator.Response, bool, error) {
		<-ctx.Done()
		return nil, false, nil
	}
	if _, err := f.cache.Review(t.Context(), "alice", nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want context.DeadlineExceeded", err)
	}
}

// TestCachedReviewEndsWithToken checks that a cached review ends with its token.
func TestCachedReviewEndsWithToken(t *testing.T) {
	fixture := newFixture(t, nil)
	advance := func(d time.Duration) { fixture.mu.Lock(); fixture.now = fixture.now.Add(d); fixture.mu.Unlock() }
	fixture.putBoundObjects()
	short := signToken(fixture.now, time.Minute)
	end := fixture.now.Add(time.Minute)
	fixture.reviewer.resultOf = func(_ context.Context, token string) (*authenticator.Response, bool, error) {
		resp := &authenticator.Response{User: authenticator.User{Name: "x"}}
		if token == "reported" {
			resp.Expires = end
		}
		return resp, true, nil
	}
	before := map[string]int{}
	for _, token := range []string{short, "reported", "plain"} {
		fixture.awaitTrue("kept", func() bool { return fixture.isCached(token) })
		before[token] = fixture.reviewer.reviewsOf(token)
	}
	advance(2*time.Minute + time.Second)
	for token, again := range map[string]int{short: 1, "reported": 1, "plain": 0} {
		fixture.review(token)
		if n := fixture.reviewer.reviewsOf(token) - before[token]; n != again {
			t.Errorf("%.10s: got %d more reviews, want %d", token, n, again)
		}
	}
}

// TestEventsInvalidateDependentReviews checks that a change of an object that a token depends on removes the cached
// response.
func TestEventsInvalidateDependentReviews(t *testing.T) {
	// cached means that the event does not concern the token. user is the user of an opaque token,
	// whose objects follow from the user only.
	for name, test := range map[string]struct {
		token  string
		user   authenticator.User
		ready  func(*fixture)
		event  func(*fixture)
		cached bool
	}{
		"account deleted": {token: bound(), event: func(f *fixture) { f.delete(satoken.KindServiceAccount, "ns", "a") }},
		"pod deleted":     {token: bound(), event: func(f *fixture) { f.delete(satoken.KindPod, "ns", "p") }},
		"secret deleted":  {token: bound(), event: func(f *fixture) { f.delete(satoken.KindSecret, "ns", "s") }},
		"secret changed":  {token: bound(), event: func(f *fixture) { f.putObject(satoken.KindSecret, "ns", "s", "us") }},
		"pod terminating": {token: bound(), event: func(f *fixture) { f.putTerminating(satoken.KindPod, "ns", "p", "up") }},
		"pod changed":     {token: bound(), event: func(f *fixture) { f.putObject(satoken.KindPod, "ns", "p", "up") }, cached: true},
		"account changed": {token: bound(), event: func(f *fixture) { f.putObject(satoken.KindServiceAccount, "ns", "a", "ua") }},
		"another account": {
			token:  bound(),
			event:  func(f *fixture) { f.putObject(satoken.KindServiceAccount, "ns", "b", "ub") },
			cached: true,
		},
		"of another name": {
			token:  bound(),
			event:  func(f *fixture) { f.delete(satoken.KindServiceAccount, "other", "a") },
			cached: true,
		},
		"bootstrap deleted": {
			token: "abcdef.0123456789abcdef",
			event: func(f *fixture) { f.delete(satoken.KindSecret, "kube-system", "bootstrap-token-abcdef") },
		},
		"bootstrap changed": {
			token: "abcdef.0123456789abcdef",
			event: func(f *fixture) { f.putObject(satoken.KindSecret, "kube-system", "bootstrap-token-abcdef", "ub") },
		},
		"opaque token, account deleted": {
			token: "opaque",
			user:  authenticator.User{Name: "system:serviceaccount:ns:a", UID: "ua"},
			event: func(f *fixture) { f.delete(satoken.KindServiceAccount, "ns", "a") },
		},
		"opaque token, pod deleted": {
			token: "opaque",
			user: authenticator.User{
				Name: "system:serviceaccount:ns:a",
				UID:  "ua",
				Extra: map[string][]string{
					satoken.ExtraPodName: {"p"}, satoken.ExtraPodUID: {"up"}, satoken.ExtraNodeName: {"gone"}},
			},
			event: func(f *fixture) { f.delete(satoken.KindPod, "ns", "p") },
		},
		"opaque token, node deleted": {
			token: "opaque",
			user: authenticator.User{
				Name:  "system:serviceaccount:ns:a",
				UID:   "ua",
				Extra: map[string][]string{satoken.ExtraNodeName: {"n"}},
			},
			event: func(f *fixture) { f.delete(satoken.KindNode, "", "n") },
		},
		"opaque token, bootstrap deleted": {
			token: "opaque",
			user:  authenticator.User{Name: "system:bootstrap:abcdef"},
			event: func(f *fixture) { f.delete(satoken.KindSecret, "kube-system", "bootstrap-token-abcdef") },
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, nil)
			f.putBoundObjects()
			f.putObject(satoken.KindNode, "", "n", "un")
			f.putObject(satoken.KindServiceAccount, "ns", "b", "ub")
			f.putObject(satoken.KindServiceAccount, "other", "a", "ux")
			f.putObject(satoken.KindSecret, "kube-system", "bootstrap-token-abcdef", "ub")
			f.reviewer.resultOf = func(_ context.Context, token string) (*authenticator.Response, bool, error) {
				if u, ok := markers[token]; ok {
					return &authenticator.Response{User: u}, true, nil
				}
				return &authenticator.Response{User: test.user}, true, nil
			}
			f.awaitEvents() // events of the puts above are no longer pending
			f.awaitTrue("kept", func() bool { return f.isCached(test.token) })
			n := f.reviewer.reviewsOf(test.token)
			test.event(f)
			if test.cached {
				f.awaitEvents()
				f.review(test.token)
				if f.reviewer.reviewsOf(test.token) != n {
					t.Errorf("%s: got another review of %q, want the cached response", name, test.token)
				}
				return
			}
			f.awaitTrue("forgotten", func() bool { f.review(test.token); return f.reviewer.reviewsOf(test.token) > n })
		})
	}
}

// markers are users that depend on one object of each kind.
var markers = map[string]authenticator.User{
	"marker-account": {Name: "system:serviceaccount:m:a", UID: "ua"},
	"marker-pod":     {Name: "system:serviceaccount:m:p", UID: "ua", Extra: map[string][]string{satoken.ExtraPodName: {"p"}}},
	"marker-node":    {Name: "system:serviceaccount:m:n", UID: "ua", Extra: map[string][]string{satoken.ExtraNodeName: {"m"}}},
	"marker-secret":  {Name: "system:bootstrap:marker"},
}

// awaitEvents returns after all earlier events were processed.
func (f *fixture) awaitEvents() {
	f.t.Helper()
	f.putObject(satoken.KindServiceAccount, "m", "a", "ua")
	f.putObject(satoken.KindServiceAccount, "m", "p", "ua")
	f.putObject(satoken.KindServiceAccount, "m", "n", "ua")
	f.putObject(satoken.KindPod, "m", "p", "up")
	f.putObject(satoken.KindNode, "", "m", "un")
	f.putObject(satoken.KindSecret, "kube-system", "bootstrap-token-marker", "us")
	for token := range markers {
		f.awaitTrue("marker kept", func() bool { return f.isCached(token) })
	}
	before := map[string]int{}
	for token := range markers {
		before[token] = f.reviewer.reviewsOf(token)
	}
	f.delete(satoken.KindServiceAccount, "m", "a")
	f.delete(satoken.KindPod, "m", "p")
	f.delete(satoken.KindNode, "", "m")
	f.delete(satoken.KindSecret, "kube-system", "bootstrap-token-marker")
	for token, n := range before {
		f.awaitTrue("marker", func() bool { f.review(token); return f.reviewer.reviewsOf(token) > n })
	}
}

// TestCreationInvalidatesRejections checks that a rejection is removed from the cache when a
// missing object is created.
func TestCreationInvalidatesRejections(t *testing.T) {
	fixture := newFixture(t, nil)
	fixture.reviewer.resultOf = func(_ context.Context, token string) (*authenticator.Response, bool, error) {
		if _, err := fixture.objects.find(satoken.KindSecret, "kube-system", "bootstrap-token-abcdef"); err != nil && token != "bad-probe" {
			return nil, false, errors.New("none")
		}
		return &authenticator.Response{User: authenticator.User{Name: "system:bootstrap:abcdef"}}, true, nil
	}
	const token = "abcdef.0123456789abcdef"
	if fixture.review(token).Authenticated || !fixture.isCached(token) {
		t.Fatal("unknown token: got it authenticated, or its rejection uncached, want a cached rejection")
	}
	fixture.putObject(satoken.KindSecret, "kube-system", "bootstrap-token-abcdef", "u")
	fixture.awaitTrue("known", func() bool { return fixture.review(token).Authenticated })
}

// TestEventDuringReviewPreventsCaching checks that a response that precedes an event is not cached,
// and requests
// that arrive after the event do not get it.
func TestEventDuringReviewPreventsCaching(t *testing.T) {
	fixture := newFixture(t, nil)
	fixture.putBoundObjects()
	started, answer := make(chan struct{}, 10), make(chan struct{})
	fixture.reviewer.resultOf = func(_ context.Context, token string) (*authenticator.Response, bool, error) {
		_, err := fixture.objects.find(satoken.KindServiceAccount, "ns", "a")
		if token == bound() {
			started <- struct{}{}
			<-answer
		}
		if err != nil {
			return nil, false, err
		}
		return &authenticator.Response{User: authenticator.User{Name: "system:serviceaccount:ns:a", UID: "ua"}}, true, nil
	}
	reviewAsync := func(in chan<- bool) {
		rev, err := fixture.cache.Review(t.Context(), bound(), nil)
		in <- err == nil && rev.Authenticated
	}
	first, second := make(chan bool, 1), make(chan bool, 1)
	go reviewAsync(first)
	<-started
	fixture.delete(satoken.KindServiceAccount, "ns", "a")
	fixture.awaitTrue("a second review", func() bool {
		// A request at this point either joins the first review or starts the second.
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, _ = fixture.cache.Review(ctx, bound(), nil)
		return fixture.reviewer.reviewsOf(bound()) > 1
	})
	go reviewAsync(second)
	close(answer)
	if !<-first {
		t.Error("request from before the deletion: got a rejection, want a user")
	}
	if <-second {
		t.Error("request from after the deletion: got a user, want a rejection")
	}
	if fixture.review(bound()).Authenticated {
		t.Error("outdated response: got it cached, want it dropped")
	}
}

// TestUnknownObjectsAreCachedBriefly checks that a user whose service account is missing is
// accepted, but not cached for long.
func TestUnknownObjectsAreCachedBriefly(t *testing.T) {
	fixture := newFixture(t, nil)
	fixture.reviewer.resultOf = func(context.Context, string) (*authenticator.Response, bool, error) {
		return &authenticator.Response{User: authenticator.User{Name: "system:serviceaccount:ns:a", UID: "ua"}}, true, nil
	}
	reviewedEachTime := func() bool {
		n := fixture.reviewer.reviewsOf("opaque")
		fixture.review("opaque")
		return fixture.reviewer.reviewsOf("opaque") > n
	}
	for range 3 {
		fixture.awaitTrue("reviewed again", reviewedEachTime)
	}
	fixture.putObject(satoken.KindServiceAccount, "ns", "a", "another")
	for range 3 {
		fixture.awaitTrue("reviewed again", reviewedEachTime)
	}
	fixture.delete(satoken.KindServiceAccount, "ns", "a")
	fixture.putObject(satoken.KindServiceAccount, "ns", "a", "ua")
	fixture.awaitTrue("kept", func() bool { return fixture.isCached("opaque") })
}

// TestPanicInReviewRejectsOnlyItsToken checks that a token that makes a library panic is rejected,
// and does not affect
// other tokens.
func TestPanicInReviewRejectsOnlyItsToken(t *testing.T) {
	f := newFixtureWithoutObjects(t, nil)
	f.reviewer.resultOf = func(context.Context, string) (*authenticator.Response, bool, error) { panic("a library") }
	if got, err := f.cache.Review(t.Context(), "x", nil); !errors.Is(err, authenticator.ErrUnavailable) {
		t.Errorf("got %+v, %v, want %v", got, err, authenticator.ErrUnavailable)
	}
	f.reviewer.resultOf = func(context.Context, string) (*authenticator.Response, bool, error) { return nil, false, nil }
	if got, err := f.cache.Review(t.Context(), "x", nil); err != nil || got.Authenticated {
		t.Errorf("second review: got %+v, %v; want no error, false", got, err)
	}
}
