package authzwebhook_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"binnacle/libs/authorizer"
	"binnacle/services/apiserver/internal/security/authz/authzwebhook"
)

// TestWebhookFailuresAreRetriedThenDecided checks the retries, and the decisions while the webhook fails.
func TestWebhookFailuresAreRetriedThenDecided(t *testing.T) {
	failWith := func(code, times int) func(http.ResponseWriter, map[string]any, *status) bool {
		var n atomic.Int64
		return func(w http.ResponseWriter, _ map[string]any, s *status) bool {
			s.Allowed = true
			if n.Add(1) <= int64(times) {
				w.WriteHeader(code)
				return true
			}
			return false
		}
	}
	respondWith := func(text string) func(http.ResponseWriter, map[string]any, *status) bool {
		return func(w http.ResponseWriter, _ map[string]any, _ *status) bool {
			_, _ = w.Write([]byte(text))
			return true
		}
	}
	for name, test := range map[string]struct {
		answer func(http.ResponseWriter, map[string]any, *status) bool
		want   string
		calls  int64
	}{
		"unavailable once":     {answer: failWith(503, 1), want: "allowed", calls: 2},
		"too busy twice":       {answer: failWith(429, 2), want: "allowed", calls: 3},
		"always failing":       {answer: failWith(500, 99), want: "FAIL error", calls: 4},
		"forbidden":            {answer: failWith(403, 99), want: "FAIL error", calls: 1},
		"request too large":    {answer: failWith(413, 99), want: "FAIL the request is too large for a review", calls: 1},
		"response is not JSON": {answer: respondWith("hello"), want: "FAIL error", calls: 1},
		"response is cut": {
			answer: func(w http.ResponseWriter, _ map[string]any, _ *status) bool {
				w.Header().Set("Content-Length", "1000")
				return respondWith(`{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","status":{"allowed":true}}`)(w, nil, nil)
			},
			want:  "FAIL error",
			calls: 4,
		},
		"malformed denied field": {
			answer: respondWith(`{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","status":{"allowed":true,"denied":"true"}}`),
			want:   "FAIL error",
			calls:  1,
		},
		"another kind": {answer: respondWith(`{"apiVersion":"v1","kind":"Status"}`), want: "FAIL error", calls: 1},
		"another object": {
			answer: respondWith(`{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview","status":{"allowed":true}}`),
			want:   "FAIL error",
			calls:  1,
		},
		"another version": {
			answer: respondWith(`{"apiVersion":"authorization.k8s.io/v1beta1","kind":"SubjectAccessReview","status":{"allowed":true}}`),
			want:   "FAIL error",
			calls:  1,
		},
		"field names in another case": {
			answer: respondWith(`{"apiVersion":"authorization.k8s.io/v1","Kind":"SubjectAccessReview","status":{"allowed":true}}`),
			want:   "FAIL error",
			calls:  1,
		},
		"too long": {
			answer: respondWith(`{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","status":{"allowed":true}}` +
				strings.Repeat(" ", 2<<20)),
			want:  "FAIL error",
			calls: 1,
		},
	} {
		for policy, decision := range map[string]authorizer.Decision{"no-opinion": authorizer.NoOpinion, "denied": authorizer.Deny} {
			f := newFixture(t, func(c *authzwebhook.Config) { c.FailureDecision = decision })
			f.service.respond = test.answer
			want := strings.Replace(test.want, "FAIL", policy, 1)
			if test.want == "allowed" && policy == "denied" {
				continue // the call counter of the case is used up
			}
			if got := f.authorize(t, attributesFor("x")); got != want || f.service.calls.Load() != test.calls {
				t.Errorf("%s, %s: got %q after %d calls, want %q after %d", name, policy, got, f.service.calls.Load(), want, test.calls)
			}
			if test.want != "allowed" { // errors are not cached
				f.service.respond = failWith(0, 0)
				if got := f.authorize(t, attributesFor("x")); got != "allowed" {
					t.Errorf("%s: after recovery: got %q, want \"allowed\"", name, got)
				}
			}
		}
	}
}

// TestResponseSizeIsLimited checks that the client stops reading a response without end.
func TestResponseSizeIsLimited(t *testing.T) {
	const total = 32 << 20 // much more than the buffers in between
	fixture := newFixture(t, nil)
	closed := make(chan bool, 1)
	fixture.service.respond = func(w http.ResponseWriter, _ map[string]any, _ *status) bool {
		part := []byte(strings.Repeat(" ", 64<<10))
		for range total / len(part) {
			if _, err := w.Write(part); err != nil {
				closed <- true
				return true
			}
		}
		closed <- false
		return true
	}
	if got := fixture.authorize(t, attributesFor("x")); got != "no-opinion error" {
		t.Errorf("got %q, want \"no-opinion error\"", got)
	}
	if !<-closed {
		t.Errorf("a response of %d bytes was read, want the connection closed before its end", total)
	}
}

// TestResponseWithManyValuesIsRejected checks that the response is not decoded.
func TestResponseWithManyValuesIsRejected(t *testing.T) {
	f := newFixture(t, nil)
	f.service.respond = func(w http.ResponseWriter, _ map[string]any, _ *status) bool {
		fmt.Fprint(w,
			`{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","status":{"allowed":true},"spec":{"groups":[""`,
			strings.Repeat(`,""`, 300_000), `]}}`)
		return true
	}
	if got := f.authorize(t, attributesFor("x")); got != "no-opinion error" {
		t.Errorf("got %q, want \"no-opinion error\"", got)
	}
}

// TestCallEndsAfterTimeout checks that a call ends after the configured time.
func TestCallEndsAfterTimeout(t *testing.T) {
	release := make(chan struct{})
	f := newFixture(t, func(c *authzwebhook.Config) { c.Timeout = 50 * time.Millisecond })
	f.service.respond = func(http.ResponseWriter, map[string]any, *status) bool { <-release; return false }
	_, _, err := f.Authorize(t.Context(), attributesFor("x")) // returns because of the timeout
	close(release)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got error %v, want %v", err, context.DeadlineExceeded)
	}
}
