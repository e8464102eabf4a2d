package webhooks_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"binnacle/libs/serving/h2"
	"binnacle/services/apiserver/internal/admission/webhooks"
	"binnacle/services/apiserver/internal/request/requesttest"
)

// statusText returns an error as the client sees it.
func statusText(err error) string {
	if err == nil {
		return ""
	}
	apiStatus, ok := err.(apierrors.APIStatus)
	if !ok {
		return "no status: " + err.Error()
	}
	s := apiStatus.Status()
	return fmt.Sprintf("%d %s: %s", s.Code, s.Reason, s.Message)
}

// TestValidatingWebhookResponseDecidesRequest checks the error, the warnings and the audit
// annotations that follow from a response, with both failure policies.
func TestValidatingWebhookResponseDecidesRequest(t *testing.T) {
	const (
		calling  = `500 InternalError: Internal error occurred: failed calling webhook "h.ex.test": `
		invalid  = calling + "received invalid webhook response: "
		rejected = `admission webhook "h.ex.test" denied the request`
	)
	// respondRaw writes a body, in which UID stands for the uid of the request.
	respondRaw := func(code int, body string) func(http.ResponseWriter, receivedReview) string {
		return func(w http.ResponseWriter, review receivedReview) string {
			w.WriteHeader(code)
			_, _ = io.WriteString(w, strings.ReplaceAll(body, "UID", review.Request.UID))
			return ""
		}
	}
	// respondWith writes a review with the fields of its response.
	respondWith := func(response string) func(http.ResponseWriter, receivedReview) string {
		return func(http.ResponseWriter, receivedReview) string { return response }
	}
	// allowedReview returns a review that allows the request. typeMeta holds its kind and version.
	allowedReview := func(typeMeta string) string { return `{` + typeMeta + `"response":{"uid":"UID","allowed":true}}` }
	for name, test := range map[string]struct {
		respond      func(http.ResponseWriter, receivedReview) string
		want         string            // prefix of the error
		ignored      bool              // failurePolicy Ignore allows the request
		wantWarnings []string          // Warning headers
		wantAudit    map[string]string // audit annotations
	}{
		"allowed":                {respond: respondWith(`"allowed":true`)},
		"allowed, with warnings": {respond: respondWith(`"allowed":true,"warnings":["careful","a\u0007b"]`), wantWarnings: []string{`299 - "careful"`}},
		"rejected, with warnings": {
			respond: respondWith(`"allowed":false,"warnings":["careful"]`),
			want:    "400 : " + rejected + " without explanation", wantWarnings: []string{`299 - "careful"`},
		},
		"allowed, with audit annotations": {respond: respondWith(`"allowed":true,"auditAnnotations":{"k":"v"}`), wantAudit: map[string]string{"h.ex.test/k": "v"}},
		"allowed, with invalid annotation keys": {
			respond:   respondWith(`"allowed":true,"auditAnnotations":{"k":"v","":"v","a b":"v","a/b":"v","` + strings.Repeat("x", 64) + `":"v"}`),
			wantAudit: map[string]string{"h.ex.test/k": "v"},
		},
		"rejected":                   {respond: respondWith(`"allowed":false,"status":{"message":"no"}`), want: "400 : " + rejected + ": no"},
		"rejected, with a reason":    {respond: respondWith(`"allowed":false,"status":{"reason":"Gone"}`), want: "400 Gone: " + rejected + ": Gone"},
		"rejected, code 429":         {respond: respondWith(`"allowed":false,"status":{"code":429}`), want: "429 : " + rejected + " without explanation"},
		"rejected, code 599":         {respond: respondWith(`"allowed":false,"status":{"code":599}`), want: "599 : " + rejected},
		"rejected, code 200":         {respond: respondWith(`"allowed":false,"status":{"code":200}`), want: "400 : " + rejected},
		"rejected, code 302":         {respond: respondWith(`"allowed":false,"status":{"code":302}`), want: "400 : " + rejected},
		"rejected, invalid code 600": {respond: respondWith(`"allowed":false,"status":{"code":600}`), want: "400 : " + rejected},
		"wrong uid": {
			respond: respondRaw(200, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"x","allowed":true}}`),
			want:    invalid + "expected response.uid=", ignored: true,
		},
		"no response": {
			respond: respondRaw(200, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}`),
			want:    invalid + "webhook response was absent", ignored: true,
		},
		"review without version and kind": {
			respond: respondRaw(200, allowedReview("")),
			want:    invalid + "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got /, Kind=",
			ignored: true,
		},
		"review of another version": {
			respond: respondRaw(200, allowedReview(`"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview",`)),
			want:    calling, ignored: true,
		},
		"object of another kind": {respond: respondRaw(200, allowedReview(`"apiVersion":"v1","kind":"Pod",`)), want: calling, ignored: true},
		"HTML":                   {respond: respondRaw(200, `<html>`), want: calling, ignored: true},
		"empty body":             {respond: respondRaw(200, ``), want: calling, ignored: true},
		"code 500": {
			respond: respondRaw(500, `broken`),
			want:    calling + `failed to call webhook: an error on the server ("broken") has prevented the request from succeeding`,
			ignored: true,
		},
		"body that is too long": {respond: respondRaw(200, strings.Repeat(" ", 9<<20)), want: calling, ignored: true},
		"patch": {
			respond: respondWith(`"allowed":true,"patchType":"JSONPatch","patch":"W10="`),
			want:    invalid + "validating webhook may not return response.patch", ignored: true,
		},
		"patch without patchType": {
			respond: respondWith(`"allowed":true,"patch":"W10="`),
			want:    invalid + "validating webhook may not return response.patch", ignored: true,
		},
		"patchType without patch": {
			respond: respondWith(`"allowed":true,"patchType":"JSONPatch"`),
			want:    invalid + "validating webhook may not return response.patchType", ignored: true,
		},
		"closed connection": {
			respond: func(http.ResponseWriter, receivedReview) string { panic(http.ErrAbortHandler) },
			want:    calling + "failed to call webhook: Post ", ignored: true,
		},
		"redirect": {respond: respondRaw(301, ``), want: calling, ignored: true},
	} {
		for _, policy := range []admissionregistrationv1.FailurePolicyType{admissionregistrationv1.Fail, admissionregistrationv1.Ignore} {
			server := serve(t, test.respond)
			withPolicy := func(w *admissionregistrationv1.ValidatingWebhook) { w.FailurePolicy = &policy }
			f := start(t, validatingConfiguration("h", server.clientConfig("/"), withPolicy))
			ctx, warnings := requesttest.WithWarnings(t.Context())
			req := f.request()
			got := statusText(f.chain.Validate(ctx, req))
			want, audit := test.want, maps.Clone(test.wantAudit)
			if test.ignored && policy == admissionregistrationv1.Ignore {
				want, audit = "", map[string]string{"failed-open.validating.webhook.admission.k8s.io/round_0_index_0": "h.ex.test"}
			}
			if !strings.HasPrefix(got, want) || want == "" && got != "" {
				t.Errorf("%s, failurePolicy %s: got error %q, want %q", name, policy, got, want)
			}
			if !slices.Equal(warnings.Headers(), test.wantWarnings) {
				t.Errorf("%s, failurePolicy %s: got warnings %q, want %q", name, policy, warnings.Headers(), test.wantWarnings)
			}
			if !maps.Equal(req.Annotations(), audit) {
				t.Errorf("%s, failurePolicy %s: got audit annotations %v, want %v", name, policy, req.Annotations(), audit)
			}
		}
	}
}

// patch returns the fields of a response that allows the request and patches the object.
func patch(ops string) string {
	return `"allowed":true,"patchType":"JSONPatch","patch":"` + base64.StdEncoding.EncodeToString([]byte(ops)) + `"`
}

// TestPatchChangesObjectOrRejectsRequest checks the object or the error that follows from a patch.
// The object of the request has the data k: v.
func TestPatchChangesObjectOrRejectsRequest(t *testing.T) {
	const internal = "500 InternalError: Internal error occurred: "
	for name, test := range map[string]struct {
		response string
		want     string            // prefix of the error
		wantData map[string]string // of the patched object
	}{
		"adds a key":            {response: patch(`[{"op":"add","path":"/data/a","value":"b"}]`), wantData: map[string]string{"k": "v", "a": "b"}},
		"removes a field":       {response: patch(`[{"op":"remove","path":"/data"}]`)},
		"is an empty list":      {response: patch(`[]`), wantData: map[string]string{"k": "v"}},
		"adds an unknown field": {response: patch(`[{"op":"add","path":"/bogus","value":1}]`), wantData: map[string]string{"k": "v"}},
		"sets a wrong type":     {response: patch(`[{"op":"add","path":"/data","value":1}]`), want: internal},
		"changes the kind": {
			response: patch(`[{"op":"replace","path":"/kind","value":"Pod"}]`),
			want:     "500 : converting (v1.Pod) to (core.ConfigMap): unknown conversion",
		},
		"replaces a missing path": {response: patch(`[{"op":"replace","path":"/none/x","value":1}]`), want: internal},
		"has a failing test":      {response: patch(`[{"op":"test","path":"/data/k","value":"x"}]`), want: internal},
		"is not JSON":             {response: patch(`{`), want: internal},
		"is not a list":           {response: patch(`{}`), want: internal},
		"replaces the empty path": {response: patch(`[{"op":"replace","path":"","value":null}]`), wantData: map[string]string{"k": "v"}},
		"has too many operations": {
			response: patch("[" + strings.Repeat(`{"op":"test","path":"/kind","value":"ConfigMap"},`, 10000) + `{"op":"test","path":"/kind","value":"ConfigMap"}]`),
			want:     internal + `admission webhook "h.ex.test" sent a JSON patch of 10001 operations; at most 10000 are allowed`,
		},
		"has no patchType": {
			response: `"allowed":true,"patch":"W10="`,
			want: internal +
				`failed calling webhook "h.ex.test": received invalid webhook response: webhook returned response.patch but not response.patchType`,
		},
		"has an unknown patchType": {
			response: `"allowed":true,"patchType":"Odd","patch":"W3sib3AiOiJ0ZXN0IiwicGF0aCI6Ii9raW5kIiwidmFsdWUiOiJDb25maWdNYXAifV0="`,
			want:     internal + `failed calling webhook "h.ex.test": unsupported patch type "Odd"`,
		},
		"is missing, but not its patchType": {
			response: `"allowed":true,"patchType":"JSONPatch"`,
			want: internal +
				`failed calling webhook "h.ex.test": received invalid webhook response: webhook returned response.patchType but not response.patch`,
		},
		"belongs to a rejection": {
			response: strings.Replace(patch(`[{"op":"remove","path":"/data"}]`), "true", "false", 1),
			want:     `400 : admission webhook "h.ex.test" denied the request without explanation`,
			wantData: map[string]string{"k": "v"},
		},
	} {
		server := serve(t, func(http.ResponseWriter, receivedReview) string { return test.response })
		f := start(t, mutatingConfiguration("h", server.clientConfig("/")))
		req := f.request()
		got := statusText(f.chain.Mutate(t.Context(), req))
		if !strings.HasPrefix(got, test.want) || test.want == "" && got != "" {
			t.Errorf("patch that %s: got error %q, want prefix %q", name, got, test.want)
		}
		if data := req.Object.(*corev1.ConfigMap).Data; test.want == "" && !maps.Equal(data, test.wantData) {
			t.Errorf("patch that %s: got data %v, want %v", name, data, test.wantData)
		} else if test.want != "" && !maps.Equal(data, map[string]string{"k": "v"}) {
			t.Errorf("patch that %s: got data %v, want no change", name, data)
		}
	}
}

// TestHookIsCalledAgainAfterLaterChange checks that a hook that asks for it is called once more if
// the object changed after its call.
func TestHookIsCalledAgainAfterLaterChange(t *testing.T) {
	for name, test := range map[string]struct {
		reinvoke []bool // for each hook: reinvocationPolicy IfNeeded
		changes  []bool // for each hook: it adds a key in each call
		want     string // paths of the calls, which are the numbers of the hooks
	}{
		"no hook asks for it":                    {reinvoke: []bool{false, false}, changes: []bool{true, true}, want: "/0 /1"},
		"first asks, second changes":             {reinvoke: []bool{true, false}, changes: []bool{false, true}, want: "/0 /1 /0"},
		"first asks, second changes nothing":     {reinvoke: []bool{true, false}, changes: []bool{false, false}, want: "/0 /1"},
		"second asks, first changes":             {reinvoke: []bool{false, true}, changes: []bool{true, false}, want: "/0 /1"},
		"both ask, both change":                  {reinvoke: []bool{true, true}, changes: []bool{true, true}, want: "/0 /1 /0 /1"},
		"first two of three ask, last changes":   {reinvoke: []bool{true, true, false}, changes: []bool{false, false, true}, want: "/0 /1 /2 /0 /1"},
		"one hook, which changes the object too": {reinvoke: []bool{true}, changes: []bool{true}, want: "/0"},
	} {
		var callCount int
		server := serve(t, func(_ http.ResponseWriter, review receivedReview) string {
			callCount++ // calls are sequential
			if hook := int(review.path[1] - '0'); !test.changes[hook] {
				return `"allowed":true`
			}
			return patch(fmt.Sprintf(`[{"op":"add","path":"/data/k%d","value":"x"}]`, callCount))
		})
		var configurations []*admissionregistrationv1.MutatingWebhookConfiguration
		for i, reinvoke := range test.reinvoke {
			setPolicy := func(w *admissionregistrationv1.MutatingWebhook) {
				if reinvoke {
					policy := admissionregistrationv1.IfNeededReinvocationPolicy
					w.ReinvocationPolicy = &policy
				}
			}
			config := mutatingConfiguration(fmt.Sprint(i), server.clientConfig(fmt.Sprintf("/%d", i)), setPolicy)
			configurations = append(configurations, config)
		}
		f := start(t, configurations...)
		if err := f.chain.Mutate(t.Context(), f.request()); err != nil {
			t.Errorf("%s: Mutate = %v, want no error", name, err)
		}
		var paths []string
		for _, review := range server.requests() {
			paths = append(paths, review.path)
		}
		if got := strings.Join(paths, " "); got != test.want {
			t.Errorf("%s: got calls %s, want %s", name, got, test.want)
		}
	}
}

// TestDryRunCallsWebhooksWithoutSideEffects checks that a dry run calls only webhooks whose
// sideEffects allow it, and fails for others.
func TestDryRunCallsWebhooksWithoutSideEffects(t *testing.T) {
	for effects, wantCalled := range map[admissionregistrationv1.SideEffectClass]bool{
		admissionregistrationv1.SideEffectClassNone: true, admissionregistrationv1.SideEffectClassNoneOnDryRun: true,
		admissionregistrationv1.SideEffectClassSome: false, admissionregistrationv1.SideEffectClassUnknown: false,
	} {
		server := serve(t, respondAllowed)
		withEffects := func(w *admissionregistrationv1.ValidatingWebhook) { w.SideEffects = &effects }
		fixture := start(t, validatingConfiguration("h", server.clientConfig("/"), withEffects))
		req := fixture.request()
		req.DryRun = true
		err := fixture.chain.Validate(t.Context(), req)
		want := ""
		if !wantCalled {
			want = `400 BadRequest: admission webhook "h.ex.test" does not support dry run`
		}
		if got := statusText(err); got != want {
			t.Errorf("sideEffects %s, dry run: got error %q, want %q", effects, got, want)
		}
		calls := server.requests()
		if (len(calls) == 1) != wantCalled || wantCalled && !calls[0].Request.DryRun {
			t.Errorf("sideEffects %s, dry run: got calls %+v, want one with dryRun: %t", effects, calls, wantCalled)
		}
		req.DryRun = false
		if err := fixture.chain.Validate(t.Context(), req); err != nil || len(server.requests()) != len(calls)+1 {
			t.Errorf("sideEffects %s, no dry run: got error %v and %d calls, want no error and 1 call",
				effects, err, len(server.requests())-len(calls))
		}
	}
}

// TestWebhookTimeoutFollowsFailurePolicy checks that a webhook that does not respond within its own
// timeout has failed, so that the failurePolicy decides on the request.
func TestWebhookTimeoutFollowsFailurePolicy(t *testing.T) {
	server := serve(t, respondAllowed)
	testDone := make(chan struct{})
	hangs := serve(t, func(http.ResponseWriter, receivedReview) string { <-testDone; return `"allowed":true` })
	t.Cleanup(func() { close(testDone) }) // before the server closes
	second := int32(1)
	withShortTimeout := func(w *admissionregistrationv1.ValidatingWebhook) { w.TimeoutSeconds = &second }
	fixture := start(t, validatingConfiguration("h", hangs.clientConfig("/"), withShortTimeout))
	want := `500 InternalError: Internal error occurred: failed calling webhook "h.ex.test": failed to call webhook: Post `
	if got := statusText(fixture.validate()); !strings.HasPrefix(got, want) {
		t.Errorf("webhook timeout: got error %q, want prefix %q", got, want)
	}
	fixture = start(t, validatingConfiguration("h", hangs.clientConfig("/"), withShortTimeout, withIgnorePolicy),
		validatingConfiguration("i", server.clientConfig("/")))
	if err := fixture.validate(); err != nil || len(server.requests()) != 1 {
		t.Errorf("webhook timeout, failurePolicy Ignore: got error %v and %d calls of the next webhook, want no error and 1 call",
			err, len(server.requests()))
	}
}

// withIgnorePolicy sets the failurePolicy Ignore.
func withIgnorePolicy(w *admissionregistrationv1.ValidatingWebhook) {
	ignorePolicy := admissionregistrationv1.Ignore
	w.FailurePolicy = &ignorePolicy
}

// TestRequestTimeoutIsNoFailureOfWebhook checks that a request that timed out before the call is
// rejected, even with failurePolicy Ignore. The timeout takes precedence over the rejection of a dry
// run.
func TestRequestTimeoutIsNoFailureOfWebhook(t *testing.T) {
	server := serve(t, respondAllowed)
	fixture := start(t, validatingConfiguration("h", server.clientConfig("/"), withIgnorePolicy))
	ctx, cancel := context.WithDeadline(t.Context(), time.Now())
	defer cancel()
	if err := fixture.chain.Validate(ctx, fixture.request()); !strings.HasPrefix(statusText(err), "504 Timeout: ") {
		t.Errorf("request timeout: got %v, want 504 Timeout", err)
	}
	some := admissionregistrationv1.SideEffectClassSome
	req := fixture.request()
	req.DryRun = true
	withSideEffects := func(w *admissionregistrationv1.ValidatingWebhook) { w.SideEffects = &some }
	fixture = start(t, validatingConfiguration("h", server.clientConfig("/"), withSideEffects))
	if err := fixture.chain.Validate(ctx, req); !strings.HasPrefix(statusText(err), "504 Timeout: ") {
		t.Errorf("request timeout, webhook without dry run: got %v, want 504 Timeout", err)
	}
}

// TestRequestIsSuspendedDuringCall checks that a request suspends its work while it waits for a
// webhook.
func TestRequestIsSuspendedDuringCall(t *testing.T) {
	var suspended chan struct{} // closed when the request is suspended
	server := serve(t, func(http.ResponseWriter, receivedReview) string {
		select {
		case <-suspended:
		case <-t.Context().Done():
		}
		return `"allowed":true`
	})
	validating := start(t, validatingConfiguration("h", server.clientConfig("/")))
	mutating := start(t, mutatingConfiguration("h", server.clientConfig("/")))
	for name, callWebhook := range map[string]func(context.Context) error{
		"validating": func(ctx context.Context) error { return validating.chain.Validate(ctx, validating.request()) },
		"mutating":   func(ctx context.Context) error { return mutating.chain.Mutate(ctx, mutating.request()) },
	} {
		suspended = make(chan struct{})
		suspend := sync.OnceFunc(func() { close(suspended) })
		work := &requesttest.Work{OnSuspend: func() func() { suspend(); return func() {} }}
		if err := callWebhook(work.With(t.Context())); err != nil {
			t.Errorf("%s webhook: got error %v, want none, because the call suspends the request", name, err)
		}
	}
}

// TestPanicInConcurrentCallReachesRequest checks that a panic in any call is raised in the
// goroutine of the request, after the other calls ended.
func TestPanicInConcurrentCallReachesRequest(t *testing.T) {
	var responses atomic.Int32
	reachable := serve(t, func(http.ResponseWriter, receivedReview) string {
		time.Sleep(20 * time.Millisecond) // slower than the call that panics
		responses.Add(1)
		return `"allowed":true`
	})
	unreachable := serve(t, nil)
	unreachableConfig := unreachable.clientConfig("/")
	unreachable.Close()
	for i, name := range []string{"a", "z"} { // before and after the other webhook, "h"
		fixture := start(t, validatingConfiguration(name, unreachableConfig), validatingConfiguration("h", reachable.clientConfig("/")))
		fixture.log.panicOn = "failed to call admission webhook" // panics when the failure is logged
		func() {
			defer func() {
				recovered := recover()
				if failure, ok := recovered.(*h2.Failure); ok {
					recovered = failure.Value
				}
				if n := responses.Load(); recovered != fixture.log.panicOn || n != int32(i+1) {
					t.Errorf("webhook %s: got panic %v after %d responses of webhook h; want panic %q after %d", name, recovered, n, fixture.log.panicOn, i+1)
				}
			}()
			err := fixture.validate()
			t.Errorf("webhook %s: Validate = %v, want a panic", name, err)
		}()
	}
}

func (f *fixture) validate() error { return f.chain.Validate(f.t.Context(), f.request()) }

// TestConnectionFailuresOpenBreaker checks that an unreachable webhook is not called until it is
// reachable again. Error responses do not open the breaker.
func TestConnectionFailuresOpenBreaker(t *testing.T) {
	// 1. Error responses keep the breaker closed.
	server := serve(t, func(w http.ResponseWriter, _ receivedReview) string {
		w.WriteHeader(http.StatusInternalServerError)
		return ""
	})
	fixture := start(t, validatingConfiguration("h", server.clientConfig("/")))
	for range 10 {
		_ = fixture.validate()
	}
	if calls := len(server.requests()); calls != 10 {
		t.Errorf("got %d calls of a reachable webhook, want 10", calls)
	}

	// 2. Three failed connections open the breaker.
	unreachable := server.clientConfig("/")
	server.Close()
	fixture = start(t, validatingConfiguration("h", unreachable))
	const skippedCalls = "binnacle_admission_webhook_unasked_total"
	for i := range 3 {
		if err := fixture.validate(); err == nil || fixture.metric(skippedCalls) != 0 {
			t.Errorf("call %d of an unreachable webhook: got error %v and %v skipped calls, want an error and none",
				i, err, fixture.metric(skippedCalls))
		}
	}
	want := webhooks.ReachabilityEvent{Kind: "ValidatingWebhookConfiguration", Configuration: "h", Webhook: "h.ex.test"}
	event := <-fixture.notices
	if !strings.Contains(event.Reason, "connection refused") {
		t.Errorf("got reason %s, want it to contain %q", event.Reason, "connection refused")
	}
	event.Reason = ""
	if event != want {
		t.Errorf("got event %+v, want %+v", event, want)
	}

	// 3. The open breaker rejects requests without a call, and is reported once.
	for range 5 {
		err := fixture.validate()
		seconds, ok := apierrors.SuggestsClientDelay(err)
		if !ok || seconds != 1 || !strings.Contains(err.Error(), "connection refused") {
			t.Errorf("breaker open: got %v; want an error that suggests a retry after 1 s and contains \"connection refused\"", err)
		}
	}
	if skipped := fixture.metric(skippedCalls); skipped != 5 {
		t.Errorf("got %v skipped calls, want 5", skipped)
	}
	if unreachable := fixture.metric("binnacle_admission_webhook_unreachable"); unreachable != 1 {
		t.Errorf("got %v unreachable webhooks, want 1", unreachable)
	}
	if lines := strings.Count(fixture.log.String(), "admission webhook unreachable; not called until it responds"); lines != 1 {
		t.Errorf("got %d log lines, want 1: %s", lines, fixture.log)
	}
	select {
	case event := <-fixture.notices:
		t.Errorf("got another event %+v, want none", event)
	default:
	}
}
