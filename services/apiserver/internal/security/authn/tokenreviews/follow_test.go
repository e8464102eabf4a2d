package tokenreviews_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"binnacle/libs/authenticator"
	"binnacle/services/apiserver/internal/security/authn/tokenreviews"
	"binnacle/services/apiserver/internal/storage"
)

// awaitForgotten returns when the cached response was removed.
func (f *fixture) awaitForgotten(token string) {
	f.t.Helper()
	n := f.reviewer.reviewsOf(token)
	f.awaitTrue("forgotten", func() bool { f.review(token); return f.reviewer.reviewsOf(token) > n })
}

// TestOutageOfEventsDropsCache checks that responses from before an outage of events are dropped, and nothing
// is cached during it.
func TestOutageOfEventsDropsCache(t *testing.T) {
	for name, lost := range map[string]error{
		"compacted": &storage.CompactedError{OldestRevision: 100}, "replaced": &storage.ReplacedError{Reason: "a test"},
	} {
		t.Run(name, func(t *testing.T) {
			fixture := newFixture(t, nil)
			if !fixture.isCached("alice") {
				t.Fatal("before the outage: got no cached response, want one")
			}
			fixture.source.broken <- lost
			if name == "replaced" { // until the next load
				fixture.awaitTrue("not kept", func() bool { return !fixture.isCached("alice") })
			}
			fixture.source.mu.Lock()
			fixture.source.revision += 100
			fixture.source.mu.Unlock()
			<-fixture.source.gate
			fixture.awaitForgotten("alice")
			fixture.awaitTrue("kept again", func() bool { return fixture.isCached("alice") })
			fixture.delete("Pod", "ns", "p") // a later event is processed
		})
	}
}

// TestCacheEndsWithWatchCache checks that reviews continue after the watch cache has stopped.
func TestCacheEndsWithWatchCache(t *testing.T) {
	f := newFixture(t, nil)
	f.awaitTrue("kept", func() bool { return f.isCached("alice") })
	f.stop()
	f.awaitTrue("not kept", func() bool { return !f.isCached("alice") })
}

// TestOutageIsCountedAndLogged checks that results are counted, and the log reports the start and the
// end of an outage.
func TestOutageIsCountedAndLogged(t *testing.T) {
	var log bytes.Buffer
	registry := prometheus.NewPedanticRegistry()
	r := newFixtureWithoutObjects(t, func(c *tokenreviews.Config) {
		c.Registerer, c.Logger = registry, slog.New(slog.NewTextHandler(&log, nil))
	})
	for _, token := range []string{"alice", "bad", "down", "down", "bad", "alice", "down"} {
		_, _ = r.cache.Review(t.Context(), token, nil)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "authentication_token_cache_fetch_total" {
				got[m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue()
			}
		}
	}
	if got["ok"] != 4 || got["error"] != 3 {
		t.Errorf("got %v; want 4, 3", got)
	}
	text := log.String()
	if strings.Count(text, "token webhook unreachable") != 2 || strings.Count(text, "token webhook reachable again") != 1 {
		t.Errorf("got log %s; want 2, 1", text)
	}
}

// gate is a request context that signals when the request waits for the response.
type gate struct {
	context.Context
	waits chan struct{}
}

func (g gate) Done() <-chan struct{} { g.waits <- struct{}{}; return nil }

// TestPrefixOfCachedTokenIsReviewed checks tokens that share memory.
func TestPrefixOfCachedTokenIsReviewed(t *testing.T) {
	f := newFixture(t, nil)
	whole := "user-10"
	for _, token := range []string{whole, whole, whole[:6], whole} {
		if rev, err := f.cache.Review(t.Context(), token, nil); err != nil || rev.User.Name != token {
			t.Errorf("token %s: got %+v, %v; want no error, %v", token, rev, err, token)
		}
	}
}

// TestTokenAndUserNameDependencies checks that a response depends on the objects of the token and
// of the user name.
func TestTokenAndUserNameDependencies(t *testing.T) {
	f := newFixture(t, nil)
	f.putBoundObjects()
	f.reviewer.resultOf = func(context.Context, string) (*authenticator.Response, bool, error) {
		return &authenticator.Response{User: authenticator.User{Name: "system:serviceaccount:ns:a", UID: "another"}}, true, nil
	}
	token := signToken(time.Now(), time.Hour)
	for range 3 {
		f.awaitForgotten(token)
	}
}
