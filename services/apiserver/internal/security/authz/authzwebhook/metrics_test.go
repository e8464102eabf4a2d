package authzwebhook_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"binnacle/libs/authorizer"
	"binnacle/services/apiserver/internal/security/authz/authzwebhook"
)

// TestCallsAreCountedByResult makes one call per case, to a webhook without cached decisions.
func TestCallsAreCountedByResult(t *testing.T) {
	const (
		evaluations = "apiserver_authorization_webhook_evaluations_total"
		failOpen    = "apiserver_authorization_webhook_evaluations_fail_open_total"
	)
	const kept = "binnacle_authorization_cache_requests_total"
	forbidden := func(w http.ResponseWriter) { w.WriteHeader(http.StatusForbidden) }
	for name, test := range map[string]struct {
		change func(*authzwebhook.Config)
		answer func(http.ResponseWriter)
		name   string
		want   map[string]string // counted results by metric
	}{
		"answered": {want: map[string]string{evaluations: "success", kept: "miss"}},
		"too long": {name: strings.Repeat("x", 10_000), want: map[string]string{evaluations: "success", kept: "oversized"}},
		"broken":   {answer: forbidden, want: map[string]string{evaluations: "error", failOpen: "error", kept: "miss"}},
		"not open": {
			answer: forbidden,
			change: func(c *authzwebhook.Config) { c.FailureDecision = authorizer.Deny },
			want:   map[string]string{evaluations: "error", kept: "miss"},
		},
		"never ends": {
			answer: func(http.ResponseWriter) {},
			change: func(c *authzwebhook.Config) { c.Timeout = 50 * time.Millisecond },
			want:   map[string]string{evaluations: "timeout", failOpen: "timeout", kept: "miss"},
		},
	} {
		release := make(chan struct{})
		fixture := newFixture(t, test.change)
		fixture.service.respond = func(w http.ResponseWriter, _ map[string]any, _ *status) bool {
			if test.answer != nil {
				test.answer(w)
			}
			if name == "never ends" {
				<-release
			}
			return test.answer != nil
		}
		fixture.authorize(t, attributesFor(test.name))
		close(release)
		for _, metric := range []string{evaluations, failOpen, kept} {
			if got := fixture.countedResults(t, metric); got != test.want[metric] {
				t.Errorf("%s: %s: got %q, want %q", name, metric, got, test.want[metric])
			}
		}
	}
	fixture := newFixture(t, nil)
	release := make(chan struct{})
	fixture.service.respond = func(http.ResponseWriter, map[string]any, *status) bool { fixture.Close(); <-release; return false }
	fixture.authorize(t, attributesFor("x"))
	close(release)
	if got := fixture.countedResults(t, evaluations) + " " + fixture.countedResults(t, failOpen); got != "canceled error" {
		t.Errorf("after the breaker closed: got %s, want \"canceled error\"", got)
	}
}

// countedResults returns the counted results of a metric.
func (r *fixture) countedResults(t *testing.T, metric string) string {
	t.Helper()
	families, err := r.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, f := range families {
		if f.GetName() != metric {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "result" && m.GetCounter().GetValue() > 0 {
					out = append(out, l.GetValue())
				}
			}
		}
	}
	return strings.Join(out, " ")
}
