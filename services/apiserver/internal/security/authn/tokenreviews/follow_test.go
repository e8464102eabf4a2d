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

// forgotten returns when the cached response was removed.
func (r *fixture) forgotten(token string) {
	r.t.Helper()
	n := r.reviewer.count(token)
	r.until("forgotten", func() bool { r.review(token); return r.reviewer.count(token) > n })
}

// TestMissedEvents: responses from before an outage of events are dropped, and nothing is cached
// during it.
func TestMissedEvents(t *testing.T) {
	for name, lost := range map[string]error{
		"compacted": &storage.CompactedError{Oldest: 100}, "replaced": &storage.ReplacedError{Why: "a test"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newFixture(t, true, nil)
			if !r.isCached("alice") {
				t.Fatal("the response is not cached")
			}
			r.source.broken <- lost
			if name == "replaced" { // until the next load
				r.until("not kept", func() bool { return !r.isCached("alice") })
			}
			r.source.mu.Lock()
			r.source.revision += 100
			r.source.mu.Unlock()
			<-r.source.gate
			r.forgotten("alice")
			r.until("kept again", func() bool { return r.isCached("alice") })
			r.delete("Pod", "ns", "p") // a later event is processed
		})
	}
}

// TestEndOfWatchCache: reviews continue after the watch cache has stopped.
func TestEndOfWatchCache(t *testing.T) {
	r := newFixture(t, true, nil)
	r.until("kept", func() bool { return r.isCached("alice") })
	r.stop()
	r.until("not kept", func() bool { return !r.isCached("alice") })
}

// TestMetricsAndOutageLogs: results are counted, and the log reports the start and the end of an
// outage.
func TestMetricsAndOutageLogs(t *testing.T) {
	var log bytes.Buffer
	registry := prometheus.NewPedanticRegistry()
	r := newFixture(t, false, func(c *tokenreviews.Config) {
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
		t.Errorf("got %v", got)
	}
	if text := log.String(); strings.Count(text, "token webhook unreachable") != 2 || strings.Count(text, "token webhook reachable again") != 1 {
		t.Errorf("got log %s", text)
	}
}

// gate is a request context that signals when the request waits for the response.
type gate struct {
	context.Context
	waits chan struct{}
}

func (g gate) Done() <-chan struct{} { g.waits <- struct{}{}; return nil }

// TestPrefixOfTokenIsAnotherToken checks tokens that share memory.
func TestPrefixOfTokenIsAnotherToken(t *testing.T) {
	r := newFixture(t, true, nil)
	whole := "user-10"
	for _, token := range []string{whole, whole, whole[:6], whole} {
		if rev, err := r.cache.Review(t.Context(), token, nil); err != nil || rev.User.Name != token {
			t.Errorf("token %s: got %+v, %v", token, rev, err)
		}
	}
}

// TestTokenAndUserNameDependencies: a response depends on the objects of the token and of the user
// name.
func TestTokenAndUserNameDependencies(t *testing.T) {
	r := newFixture(t, true, nil)
	r.all()
	r.reviewer.resultOf = func(context.Context, string) (*authenticator.Response, bool, error) {
		return &authenticator.Response{User: authenticator.User{Name: "system:serviceaccount:ns:a", UID: "another"}}, true, nil
	}
	token := signed(time.Now(), time.Hour)
	for range 3 {
		r.forgotten(token)
	}
}
