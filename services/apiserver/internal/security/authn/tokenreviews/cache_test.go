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
var bound = sync.OnceValue(func() string { return signed(time.Now(), time.Hour) })

func signed(at time.Time, life time.Duration) string {
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
			Namespace: "ns", ServiceAccount: satoken.Ref{Name: "a", UID: "ua"},
			Pod: &satoken.Ref{Name: "p", UID: "up"}, Secret: &satoken.Ref{Name: "s", UID: "us"},
		}, IssuedAt: at, Lifetime: life,
	})
	if err != nil {
		panic(err)
	}
	return token
}

// all stores the objects that the bound token depends on.
func (r *fixture) all() {
	r.put(satoken.KindServiceAccount, "ns", "a", "ua", false)
	r.put(satoken.KindPod, "ns", "p", "up", false)
	r.put(satoken.KindSecret, "ns", "s", "us", false)
}

func TestResponsesAreCached(t *testing.T) {
	r := newFixture(t, true, nil)
	if rev := r.review("alice"); !rev.Authenticated || rev.User.Name != "alice" || !rev.User.InGroup("system:authenticated") {
		t.Errorf("got %+v", rev)
	}
	if !r.isCached("alice") || r.reviewer.count("alice") != 1 {
		t.Errorf("a positive response is not cached: got %d reviews", r.reviewer.count("alice"))
	}
	r.review("alice", "api")
	if n := r.reviewer.count("alice"); n != 1 {
		t.Errorf("the server's own audience has a separate cache entry: got %d reviews", n)
	}
	r.review("alice", "other")
	if n := r.reviewer.count("alice"); n != 2 {
		t.Errorf("other audiences share a cache entry: got %d reviews", n)
	}
	if rev := r.review("bad"); rev.Authenticated || rev.Error != "no good" || !r.isCached("bad") {
		t.Errorf("rejection: got %+v", rev)
	}
	if _, err := r.cache.Review(t.Context(), "down", nil); !errors.Is(err, authenticator.ErrUnavailable) || r.isCached("down") {
		t.Errorf("unavailable: got %v, cached", err)
	}
}

func TestNoCacheWithoutEvents(t *testing.T) {
	r := newFixture(t, false, nil)
	if r.isCached("alice") {
		t.Error("a response is cached although no events are followed")
	}
}

func TestUnknownTokens(t *testing.T) {
	r := newFixture(t, false, nil)
	r.reviewer.resultOf = func(context.Context, string) (*authenticator.Response, bool, error) { return nil, false, nil }
	if rev := r.review("x"); rev.Authenticated || rev.Error != authn.UnknownToken {
		t.Errorf("got %+v", rev)
	}
	r.reviewer.resultOf = func(_ context.Context, token string) (*authenticator.Response, bool, error) {
		return nil, false, errors.New("I do not know " + token)
	}
	if rev := r.review("secret"); rev.Authenticated || rev.Error != "I do not know <token>" {
		t.Errorf("got %+v", rev)
	}
	long := strings.Repeat("x", authenticator.MaxTokenBytes+1)
	if rev := r.review(long); rev.Authenticated || rev.Error == "" || r.reviewer.count(long) != 0 {
		t.Errorf("huge token: got %+v", rev)
	}
}

func TestConcurrentReviewsShareOneFlight(t *testing.T) {
	r := newFixture(t, true, nil)
	begun, answer := make(chan struct{}), make(chan struct{})
	r.reviewer.resultOf = func(ctx context.Context, token string) (*authenticator.Response, bool, error) {
		close(begun)
		<-answer
		return byName(ctx, token)
	}
	impatient, cancel := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() {
		_, err := r.cache.Review(impatient, "alice", nil)
		left <- err
	}()
	<-begun
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			if rev, err := r.cache.Review(t.Context(), "alice", nil); err != nil || !rev.Authenticated {
				t.Errorf("got %+v, %v", rev, err)
			}
		})
	}
	cancel() // the flight does not depend on the first request
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("canceled request: got %v", err)
	}
	close(answer)
	wg.Wait()
	if n := r.reviewer.count("alice"); n != 1 {
		t.Errorf("got %d reviews", n)
	}
}

func TestTimeout(t *testing.T) {
	r := newFixture(t, false, func(c *tokenreviews.Config) { c.Timeout = 10 * time.Millisecond })
	r.reviewer.resultOf = func(ctx context.Context, _ string) (*authenticator.Response, bool, error) {
		<-ctx.Done()
		return nil, false, nil
	}
	if _, err := r.cache.Review(t.Context(), "alice", nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
}

func TestExpiry(t *testing.T) {
	r := newFixture(t, true, nil)
	advance := func(d time.Duration) { r.mu.Lock(); r.now = r.now.Add(d); r.mu.Unlock() }
	r.all()
	short := signed(r.now, time.Minute)
	end := r.now.Add(time.Minute)
	r.reviewer.resultOf = func(_ context.Context, token string) (*authenticator.Response, bool, error) {
		resp := &authenticator.Response{User: authenticator.User{Name: "x"}}
		if token == "reported" {
			resp.Expires = end
		}
		return resp, true, nil
	}
	before := map[string]int{}
	for _, token := range []string{short, "reported", "plain"} {
		r.until("kept", func() bool { return r.isCached(token) })
		before[token] = r.reviewer.count(token)
	}
	advance(2*time.Minute + time.Second)
	for token, again := range map[string]int{short: 1, "reported": 1, "plain": 0} {
		r.review(token)
		if n := r.reviewer.count(token) - before[token]; n != again {
			t.Errorf("%.10s: got %d more reviews, want %d", token, n, again)
		}
	}
}

// TestEventsInvalidate: a change of an object that a token depends on removes the cached response.
func TestEventsInvalidate(t *testing.T) {
	for name, c := range map[string]struct {
		token  string
		user   authenticator.User
		ready  func(*fixture)
		event  func(*fixture)
		cached bool
	}{
		"account deleted":   {token: bound(), event: func(r *fixture) { r.delete(satoken.KindServiceAccount, "ns", "a") }},
		"pod deleted":       {token: bound(), event: func(r *fixture) { r.delete(satoken.KindPod, "ns", "p") }},
		"secret deleted":    {token: bound(), event: func(r *fixture) { r.delete(satoken.KindSecret, "ns", "s") }},
		"secret changed":    {token: bound(), event: func(r *fixture) { r.put(satoken.KindSecret, "ns", "s", "us", false) }},
		"pod terminating":   {token: bound(), event: func(r *fixture) { r.put(satoken.KindPod, "ns", "p", "up", true) }},
		"pod changed":       {token: bound(), event: func(r *fixture) { r.put(satoken.KindPod, "ns", "p", "up", false) }, cached: true},
		"account changed":   {token: bound(), event: func(r *fixture) { r.put(satoken.KindServiceAccount, "ns", "a", "ua", false) }},
		"another account":   {token: bound(), event: func(r *fixture) { r.put(satoken.KindServiceAccount, "ns", "b", "ub", false) }, cached: true},
		"of another name":   {token: bound(), event: func(r *fixture) { r.delete(satoken.KindServiceAccount, "other", "a") }, cached: true},
		"bootstrap deleted": {token: "abcdef.0123456789abcdef", event: func(r *fixture) { r.delete(satoken.KindSecret, "kube-system", "bootstrap-token-abcdef") }},
		"bootstrap changed": {token: "abcdef.0123456789abcdef", event: func(r *fixture) { r.put(satoken.KindSecret, "kube-system", "bootstrap-token-abcdef", "ub", false) }},
		"opaque token, account deleted": {
			token: "opaque", user: authenticator.User{Name: "system:serviceaccount:ns:a", UID: "ua"},
			event: func(r *fixture) { r.delete(satoken.KindServiceAccount, "ns", "a") },
		},
		"opaque token, pod deleted": {
			token: "opaque", user: authenticator.User{Name: "system:serviceaccount:ns:a", UID: "ua", Extra: map[string][]string{
				satoken.ExtraPodName: {"p"}, satoken.ExtraPodUID: {"up"}, satoken.ExtraNodeName: {"gone"}}},
			event: func(r *fixture) { r.delete(satoken.KindPod, "ns", "p") },
		},
		"opaque token, node deleted": {
			token: "opaque", user: authenticator.User{Name: "system:serviceaccount:ns:a", UID: "ua", Extra: map[string][]string{satoken.ExtraNodeName: {"n"}}},
			event: func(r *fixture) { r.delete(satoken.KindNode, "", "n") },
		},
		"opaque token, bootstrap deleted": {
			token: "opaque", user: authenticator.User{Name: "system:bootstrap:abcdef"},
			event: func(r *fixture) { r.delete(satoken.KindSecret, "kube-system", "bootstrap-token-abcdef") },
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newFixture(t, true, nil)
			r.all()
			r.put(satoken.KindNode, "", "n", "un", false)
			r.put(satoken.KindServiceAccount, "ns", "b", "ub", false)
			r.put(satoken.KindServiceAccount, "other", "a", "ux", false)
			r.put(satoken.KindSecret, "kube-system", "bootstrap-token-abcdef", "ub", false)
			r.reviewer.resultOf = func(_ context.Context, token string) (*authenticator.Response, bool, error) {
				if u, ok := markers[token]; ok {
					return &authenticator.Response{User: u}, true, nil
				}
				return &authenticator.Response{User: c.user}, true, nil
			}
			r.marker() // events of the puts above are no longer pending
			r.until("kept", func() bool { return r.isCached(c.token) })
			n := r.reviewer.count(c.token)
			c.event(r)
			if c.cached {
				r.marker()
				r.review(c.token)
				if r.reviewer.count(c.token) != n {
					t.Error("an unrelated event removed the response")
				}
				return
			}
			r.until("forgotten", func() bool { r.review(c.token); return r.reviewer.count(c.token) > n })
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

// marker returns after all earlier events were processed.
func (r *fixture) marker() {
	r.t.Helper()
	r.put(satoken.KindServiceAccount, "m", "a", "ua", false)
	r.put(satoken.KindServiceAccount, "m", "p", "ua", false)
	r.put(satoken.KindServiceAccount, "m", "n", "ua", false)
	r.put(satoken.KindPod, "m", "p", "up", false)
	r.put(satoken.KindNode, "", "m", "un", false)
	r.put(satoken.KindSecret, "kube-system", "bootstrap-token-marker", "us", false)
	for token := range markers {
		r.until("marker kept", func() bool { return r.isCached(token) })
	}
	before := map[string]int{}
	for token := range markers {
		before[token] = r.reviewer.count(token)
	}
	r.delete(satoken.KindServiceAccount, "m", "a")
	r.delete(satoken.KindPod, "m", "p")
	r.delete(satoken.KindNode, "", "m")
	r.delete(satoken.KindSecret, "kube-system", "bootstrap-token-marker")
	for token, n := range before {
		r.until("marker", func() bool { r.review(token); return r.reviewer.count(token) > n })
	}
}

// TestCreationInvalidatesRejections: a rejection is removed from the cache when a missing object is
// created.
func TestCreationInvalidatesRejections(t *testing.T) {
	r := newFixture(t, true, nil)
	r.reviewer.resultOf = func(_ context.Context, token string) (*authenticator.Response, bool, error) {
		if _, err := r.objects.find(satoken.KindSecret, "kube-system", "bootstrap-token-abcdef"); err != nil && token != "bad-probe" {
			return nil, false, errors.New("none")
		}
		return &authenticator.Response{User: authenticator.User{Name: "system:bootstrap:abcdef"}}, true, nil
	}
	const token = "abcdef.0123456789abcdef"
	if r.review(token).Authenticated || !r.isCached(token) {
		t.Fatal("the token was not rejected, or the rejection was not cached")
	}
	r.put(satoken.KindSecret, "kube-system", "bootstrap-token-abcdef", "u", false)
	r.until("known", func() bool { return r.review(token).Authenticated })
}

// TestEventDuringReview: a response that precedes an event is not cached, and requests that arrive
// after the event do not get it.
func TestEventDuringReview(t *testing.T) {
	r := newFixture(t, true, nil)
	r.all()
	begun, answer := make(chan struct{}, 10), make(chan struct{})
	r.reviewer.resultOf = func(_ context.Context, token string) (*authenticator.Response, bool, error) {
		_, err := r.objects.find(satoken.KindServiceAccount, "ns", "a")
		if token == bound() {
			begun <- struct{}{}
			<-answer
		}
		if err != nil {
			return nil, false, err
		}
		return &authenticator.Response{User: authenticator.User{Name: "system:serviceaccount:ns:a", UID: "ua"}}, true, nil
	}
	asked := func(in chan<- bool) {
		rev, err := r.cache.Review(t.Context(), bound(), nil)
		in <- err == nil && rev.Authenticated
	}
	first, second := make(chan bool, 1), make(chan bool, 1)
	go asked(first)
	<-begun
	r.delete(satoken.KindServiceAccount, "ns", "a")
	r.until("a second review", func() bool {
		// A request at this point either joins the first review or starts the second.
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, _ = r.cache.Review(ctx, bound(), nil)
		return r.reviewer.count(bound()) > 1
	})
	go asked(second)
	close(answer)
	if !<-first {
		t.Error("a request from before the deletion is rejected")
	}
	if <-second {
		t.Error("a request from after the deletion is accepted")
	}
	if r.review(bound()).Authenticated {
		t.Error("the outdated response is cached")
	}
}

// TestUnknownObjectsAreCachedBriefly: a user whose service account is missing is accepted, but not
// cached for long.
func TestUnknownObjectsAreCachedBriefly(t *testing.T) {
	r := newFixture(t, true, nil)
	r.reviewer.resultOf = func(context.Context, string) (*authenticator.Response, bool, error) {
		return &authenticator.Response{User: authenticator.User{Name: "system:serviceaccount:ns:a", UID: "ua"}}, true, nil
	}
	reviewedEachTime := func() bool {
		n := r.reviewer.count("opaque")
		r.review("opaque")
		return r.reviewer.count("opaque") > n
	}
	for range 3 {
		r.until("reviewed again", reviewedEachTime)
	}
	r.put(satoken.KindServiceAccount, "ns", "a", "another", false)
	for range 3 {
		r.until("reviewed again", reviewedEachTime)
	}
	r.delete(satoken.KindServiceAccount, "ns", "a")
	r.put(satoken.KindServiceAccount, "ns", "a", "ua", false)
	r.until("kept", func() bool { return r.isCached("opaque") })
}

// TestPanicInReview: a token that makes a library panic is rejected, and does not affect other
// tokens.
func TestPanicInReview(t *testing.T) {
	r := newFixture(t, false, nil)
	r.reviewer.resultOf = func(context.Context, string) (*authenticator.Response, bool, error) { panic("a library") }
	if got, err := r.cache.Review(t.Context(), "x", nil); !errors.Is(err, authenticator.ErrUnavailable) {
		t.Errorf("got %+v, %v", got, err)
	}
	r.reviewer.resultOf = func(context.Context, string) (*authenticator.Response, bool, error) { return nil, false, nil }
	if got, err := r.cache.Review(t.Context(), "x", nil); err != nil || got.Authenticated {
		t.Errorf("second review: got %+v, %v", got, err)
	}
}
