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

	admissionv1 "k8s.io/api/admissionregistration/v1"
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
	st, ok := err.(apierrors.APIStatus)
	if !ok {
		return "no status: " + err.Error()
	}
	s := st.Status()
	return fmt.Sprintf("%d %s: %s", s.Code, s.Reason, s.Message)
}

func TestValidatingWebhookResponses(t *testing.T) {
	const (
		calling  = `500 InternalError: Internal error occurred: failed calling webhook "h.ex.test": `
		invalid  = calling + "received invalid webhook response: "
		rejected = `admission webhook "h.ex.test" denied the request`
	)
	respondRaw := func(code int, body string) func(http.ResponseWriter, receivedReview) string {
		return func(w http.ResponseWriter, q receivedReview) string {
			w.WriteHeader(code)
			_, _ = io.WriteString(w, strings.ReplaceAll(body, "UID", q.Request.UID))
			return ""
		}
	}
	respondWith := func(response string) func(http.ResponseWriter, receivedReview) string {
		return func(http.ResponseWriter, receivedReview) string { return response }
	}
	review := func(head string) string { return `{` + head + `"response":{"uid":"UID","allowed":true}}` }
	for name, c := range map[string]struct {
		say     func(http.ResponseWriter, receivedReview) string
		want    string // prefix of the error
		ignored bool   // failurePolicy Ignore allows the request
		warned  []string
		audit   map[string]string
	}{
		"allowed":       {say: respondWith(`"allowed":true`)},
		"with warnings": {say: respondWith(`"allowed":true,"warnings":["careful","a\u0007b"]`), warned: []string{`299 - "careful"`}},
		"rejected and warned": {
			say:  respondWith(`"allowed":false,"warnings":["careful"]`),
			want: "400 : " + rejected + " without explanation", warned: []string{`299 - "careful"`},
		},
		"with annotations": {say: respondWith(`"allowed":true,"auditAnnotations":{"k":"v"}`), audit: map[string]string{"h.ex.test/k": "v"}},
		"with keys of none": {
			say:   respondWith(`"allowed":true,"auditAnnotations":{"k":"v","":"v","a b":"v","a/b":"v","` + strings.Repeat("x", 64) + `":"v"}`),
			audit: map[string]string{"h.ex.test/k": "v"},
		},
		"rejected":          {say: respondWith(`"allowed":false,"status":{"message":"no"}`), want: "400 : " + rejected + ": no"},
		"rejected, reason":  {say: respondWith(`"allowed":false,"status":{"reason":"Gone"}`), want: "400 Gone: " + rejected + ": Gone"},
		"rejected, 429":     {say: respondWith(`"allowed":false,"status":{"code":429}`), want: "429 : " + rejected + " without explanation"},
		"rejected, 599":     {say: respondWith(`"allowed":false,"status":{"code":599}`), want: "599 : " + rejected},
		"rejected, 200":     {say: respondWith(`"allowed":false,"status":{"code":200}`), want: "400 : " + rejected},
		"rejected, 302":     {say: respondWith(`"allowed":false,"status":{"code":302}`), want: "400 : " + rejected},
		"rejected, no code": {say: respondWith(`"allowed":false,"status":{"code":600}`), want: "400 : " + rejected},
		"wrong uid": {
			say:  respondRaw(200, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"x","allowed":true}}`),
			want: invalid + "expected response.uid=", ignored: true,
		},
		"no response": {
			say:  respondRaw(200, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}`),
			want: invalid + "webhook response was absent", ignored: true,
		},
		"no version": {
			say:     respondRaw(200, review("")),
			want:    invalid + "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got /, Kind=",
			ignored: true,
		},
		"another version": {
			say:  respondRaw(200, review(`"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview",`)),
			want: calling, ignored: true,
		},
		"another kind": {say: respondRaw(200, review(`"apiVersion":"v1","kind":"Pod",`)), want: calling, ignored: true},
		"no JSON":      {say: respondRaw(200, `<html>`), want: calling, ignored: true},
		"nothing":      {say: respondRaw(200, ``), want: calling, ignored: true},
		"an error": {
			say:     respondRaw(500, `broken`),
			want:    calling + `failed to call webhook: an error on the server ("broken") has prevented the request from succeeding`,
			ignored: true,
		},
		"too long": {say: respondRaw(200, strings.Repeat(" ", 9<<20)), want: calling, ignored: true},
		"a patch": {
			say:  respondWith(`"allowed":true,"patchType":"JSONPatch","patch":"W10="`),
			want: invalid + "validating webhook may not return response.patch", ignored: true,
		},
		"a patch of no type": {
			say:  respondWith(`"allowed":true,"patch":"W10="`),
			want: invalid + "validating webhook may not return response.patch", ignored: true,
		},
		"a type of patch": {
			say:  respondWith(`"allowed":true,"patchType":"JSONPatch"`),
			want: invalid + "validating webhook may not return response.patchType", ignored: true,
		},
		"closed": {
			say:  func(http.ResponseWriter, receivedReview) string { panic(http.ErrAbortHandler) },
			want: calling + "failed to call webhook: Post ", ignored: true,
		},
		"a redirect to other": {say: respondRaw(301, ``), want: calling, ignored: true},
	} {
		for _, policy := range []admissionv1.FailurePolicyType{admissionv1.Fail, admissionv1.Ignore} {
			server := serve(t, c.say)
			f := start(t, validatingConfiguration("h", server.clientConfig("/"), func(w *admissionv1.ValidatingWebhook) { w.FailurePolicy = &policy }))
			ctx, warnings := requesttest.WithWarnings(t.Context())
			r := f.request()
			got := statusText(f.chain.Validate(ctx, r))
			want, audit := c.want, maps.Clone(c.audit)
			if c.ignored && policy == admissionv1.Ignore {
				want, audit = "", map[string]string{"failed-open.validating.webhook.admission.k8s.io/round_0_index_0": "h.ex.test"}
			}
			if !strings.HasPrefix(got, want) || want == "" && got != "" {
				t.Errorf("%s, %s: %q, want %q", name, policy, got, want)
			}
			if !slices.Equal(warnings.Headers(), c.warned) {
				t.Errorf("%s, %s: warned %q, want %v", name, policy, warnings.Headers(), c.warned)
			}
			if !maps.Equal(r.Annotations(), audit) {
				t.Errorf("%s, %s: audit %v, want %v", name, policy, r.Annotations(), audit)
			}
		}
	}
}

func patch(ops string) string {
	return `"allowed":true,"patchType":"JSONPatch","patch":"` + base64.StdEncoding.EncodeToString([]byte(ops)) + `"`
}

func TestMutatingWebhookPatches(t *testing.T) {
	const internal = "500 InternalError: Internal error occurred: "
	for name, c := range map[string]struct {
		response string
		want     string // prefix of the error
		data     map[string]string
	}{
		"adds a key":       {response: patch(`[{"op":"add","path":"/data/a","value":"b"}]`), data: map[string]string{"k": "v", "a": "b"}},
		"removes a field":  {response: patch(`[{"op":"remove","path":"/data"}]`)},
		"is empty":         {response: patch(`[]`), data: map[string]string{"k": "v"}},
		"an unknown field": {response: patch(`[{"op":"add","path":"/bogus","value":1}]`), data: map[string]string{"k": "v"}},
		"a wrong type":     {response: patch(`[{"op":"add","path":"/data","value":1}]`), want: internal},
		"another kind": {
			response: patch(`[{"op":"replace","path":"/kind","value":"Pod"}]`),
			want:     "500 : converting (v1.Pod) to (core.ConfigMap): unknown conversion",
		},
		"no such path":      {response: patch(`[{"op":"replace","path":"/none/x","value":1}]`), want: internal},
		"a test that fails": {response: patch(`[{"op":"test","path":"/data/k","value":"x"}]`), want: internal},
		"no JSON":           {response: patch(`{`), want: internal},
		"not a list":        {response: patch(`{}`), want: internal},
		"names no path":     {response: patch(`[{"op":"replace","path":"","value":null}]`), data: map[string]string{"k": "v"}},
		"too many operations": {
			response: patch("[" + strings.Repeat(`{"op":"test","path":"/kind","value":"ConfigMap"},`, 10000) + `{"op":"test","path":"/kind","value":"ConfigMap"}]`),
			want:     internal + `admission webhook "h.ex.test" sent a JSON patch of 10001 operations; at most 10000 are allowed`,
		},
		"without a type": {
			response: `"allowed":true,"patch":"W10="`,
			want: internal +
				`failed calling webhook "h.ex.test": received invalid webhook response: webhook returned response.patch but not response.patchType`,
		},
		"of an unknown type": {
			response: `"allowed":true,"patchType":"Odd","patch":"W3sib3AiOiJ0ZXN0IiwicGF0aCI6Ii9raW5kIiwidmFsdWUiOiJDb25maWdNYXAifV0="`,
			want:     internal + `failed calling webhook "h.ex.test": unsupported patch type "Odd"`,
		},
		"a type, but none": {
			response: `"allowed":true,"patchType":"JSONPatch"`,
			want: internal +
				`failed calling webhook "h.ex.test": received invalid webhook response: webhook returned response.patchType but not response.patch`,
		},
		"rejected with a patch": {
			response: strings.Replace(patch(`[{"op":"remove","path":"/data"}]`), "true", "false", 1),
			want:     `400 : admission webhook "h.ex.test" denied the request without explanation`,
			data:     map[string]string{"k": "v"},
		},
	} {
		server := serve(t, func(http.ResponseWriter, receivedReview) string { return c.response })
		f := start(t, mutatingConfiguration("h", server.clientConfig("/")))
		r := f.request()
		got := statusText(f.chain.Mutate(t.Context(), r))
		if !strings.HasPrefix(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		if data := r.Object.(*corev1.ConfigMap).Data; c.want == "" && !maps.Equal(data, c.data) {
			t.Errorf("%s: got %v, want %v", name, data, c.data)
		} else if c.want != "" && !maps.Equal(data, map[string]string{"k": "v"}) {
			t.Errorf("%s: got object %v, want no change", name, data)
		}
	}
}

// TestHookIsCalledAgainAfterLaterChange checks that a hook that asks for it is called once more if
// the object changed after its call.
func TestHookIsCalledAgainAfterLaterChange(t *testing.T) {
	for name, c := range map[string]struct {
		wants   []bool   // reinvocation policy of each hook
		changes []string // "new" if the hook adds a key in each call
		asked   string
	}{
		"no hook asks for it":       {wants: []bool{false, false}, changes: []string{"new", "new"}, asked: "/0 /1"},
		"first, second changes":     {wants: []bool{true, false}, changes: []string{"", "new"}, asked: "/0 /1 /0"},
		"first, second does not":    {wants: []bool{true, false}, changes: []string{"", ""}, asked: "/0 /1"},
		"second, first changes":     {wants: []bool{false, true}, changes: []string{"new", ""}, asked: "/0 /1"},
		"both, and both change":     {wants: []bool{true, true}, changes: []string{"new", "new"}, asked: "/0 /1 /0 /1"},
		"three, the last one does":  {wants: []bool{true, true, false}, changes: []string{"", "", "new"}, asked: "/0 /1 /2 /0 /1"},
		"its own change is nothing": {wants: []bool{true}, changes: []string{"new"}, asked: "/0"},
	} {
		var n int
		server := serve(t, func(_ http.ResponseWriter, q receivedReview) string {
			n++ // calls are sequential
			if c.changes[int(q.path[1]-'0')] == "" {
				return `"allowed":true`
			}
			return patch(fmt.Sprintf(`[{"op":"add","path":"/data/k%d","value":"x"}]`, n))
		})
		var all []*admissionv1.MutatingWebhookConfiguration
		for i, again := range c.wants {
			all = append(all, mutatingConfiguration(fmt.Sprint(i), server.clientConfig(fmt.Sprintf("/%d", i)), func(w *admissionv1.MutatingWebhook) {
				if again {
					policy := admissionv1.IfNeededReinvocationPolicy
					w.ReinvocationPolicy = &policy
				}
			}))
		}
		f := start(t, all...)
		if err := f.chain.Mutate(t.Context(), f.request()); err != nil {
			t.Errorf("%s: got %v, want no error", name, err)
		}
		var asked []string
		for _, q := range server.requests() {
			asked = append(asked, q.path)
		}
		if got := strings.Join(asked, " "); got != c.asked {
			t.Errorf("%s: got calls %s, want %s", name, got, c.asked)
		}
	}
}

func TestDryRunCallsWebhooksWithoutSideEffects(t *testing.T) {
	for effects, asked := range map[admissionv1.SideEffectClass]bool{
		admissionv1.SideEffectClassNone: true, admissionv1.SideEffectClassNoneOnDryRun: true, admissionv1.SideEffectClassSome: false, admissionv1.SideEffectClassUnknown: false,
	} {
		server := serve(t, func(http.ResponseWriter, receivedReview) string { return `"allowed":true` })
		f := start(t, validatingConfiguration("h", server.clientConfig("/"), func(w *admissionv1.ValidatingWebhook) { w.SideEffects = &effects }))
		r := f.request()
		r.DryRun = true
		err := f.chain.Validate(t.Context(), r)
		if want := `400 BadRequest: admission webhook "h.ex.test" does not support dry run`; asked && err != nil || !asked && statusText(err) != want {
			t.Errorf("%s: %v", effects, err)
		}
		r.DryRun = false
		if err := f.chain.Validate(t.Context(), r); err != nil || len(server.requests()) == 0 {
			t.Errorf("%s, without dry run: %v; want no error, other than 0", effects, err)
		}
		if q := server.requests()[:len(server.requests())-1]; (len(q) == 1) != asked || asked && !q[0].Request.DryRun {
			t.Errorf("%s: got %d calls, want one with dryRun: %t", effects, len(q), asked)
		}
	}
}

// TestTimeoutOfWebhookAndRequest checks that a hanging webhook costs at most its own timeout or the
// rest of the request's.
func TestTimeoutOfWebhookAndRequest(t *testing.T) {
	server := serve(t, func(_ http.ResponseWriter, q receivedReview) string { return `"allowed":true` })
	hang := make(chan struct{})
	hangs := serve(t, func(http.ResponseWriter, receivedReview) string { <-hang; return `"allowed":true` })
	t.Cleanup(func() { close(hang) }) // before the server closes
	second := int32(1)
	withShortTimeout := func(w *admissionv1.ValidatingWebhook) { w.TimeoutSeconds = &second }
	withIgnorePolicy := func(w *admissionv1.ValidatingWebhook) { p := admissionv1.Ignore; w.FailurePolicy = &p }
	if err := start(t, validatingConfiguration("h", hangs.clientConfig("/"), withShortTimeout)).validate(); !strings.HasPrefix(statusText(err), `500 InternalError: Internal error occurred: failed calling webhook "h.ex.test": failed to call webhook: Post `) {
		t.Errorf("webhook timeout: got %v, want prefix `500 InternalError: Internal error occurred: failed calling webhook \"h.ex.test\": failed to call webhook: Post `", err)
	}
	if err := start(t, validatingConfiguration("h", hangs.clientConfig("/"), withShortTimeout, withIgnorePolicy), validatingConfiguration("i", server.clientConfig("/"))).validate(); err != nil || len(server.requests()) != 1 {
		t.Errorf("webhook timeout, ignored: got %v, %d calls of the other webhook; want no error, length 1", err, len(server.requests()))
	}
	// The request has timed out before the call. This is not a failure of the webhook,
	// which the failurePolicy could ignore.
	f := start(t, validatingConfiguration("h", hangs.clientConfig("/"), withIgnorePolicy))
	ctx, cancel := context.WithDeadline(t.Context(), time.Now())
	defer cancel()
	if err := f.chain.Validate(ctx, f.request()); !strings.HasPrefix(statusText(err), "504 Timeout: ") {
		t.Errorf("request timeout: got %v, want 504 Timeout", err)
	}
	some := admissionv1.SideEffectClassSome
	r := f.request()
	r.DryRun = true
	f = start(t, validatingConfiguration("h", hangs.clientConfig("/"), func(w *admissionv1.ValidatingWebhook) { w.SideEffects = &some }))
	if err := f.chain.Validate(ctx, r); !strings.HasPrefix(statusText(err), "504 Timeout: ") {
		t.Errorf("request timeout, webhook without dry run: got %v, want 504 Timeout", err)
	}
}

// TestRequestIsSuspendedDuringCall checks that a request releases its seats while it waits for a
// webhook.
func TestRequestIsSuspendedDuringCall(t *testing.T) {
	var waits chan struct{}
	hangs := serve(t, func(http.ResponseWriter, receivedReview) string {
		select {
		case <-waits:
		case <-t.Context().Done():
		}
		return `"allowed":true`
	})
	for name, f := range map[string]*fixture{"validating": start(t, validatingConfiguration("h", hangs.clientConfig("/"))), "mutating": start(t, mutatingConfiguration("h", hangs.clientConfig("/")))} {
		waits = make(chan struct{})
		once := sync.OnceFunc(func() { close(waits) })
		ctx := (&requesttest.Work{OnSuspend: func() func() { once(); return func() {} }}).With(t.Context())
		ask := f.chain.Validate
		if name == "mutating" {
			ask = f.chain.Mutate
		}
		if err := ask(ctx, f.request()); err != nil {
			t.Errorf("%s: the request was not suspended: %v, want no error", name, err)
		}
	}
}

// TestPanicInConcurrentCallReachesRequest checks that a panic in any call is raised in the
// goroutine of the request.
func TestPanicInConcurrentCallReachesRequest(t *testing.T) {
	var answered atomic.Int32
	good, gone := serve(t, func(http.ResponseWriter, receivedReview) string {
		time.Sleep(20 * time.Millisecond) // slower than the call that panics
		answered.Add(1)
		return `"allowed":true`
	}), serve(t, nil)
	to := gone.clientConfig("/")
	gone.Close()
	for i, name := range []string{"a", "z"} {
		f := start(t, validatingConfiguration(name, to), validatingConfiguration("h", good.clientConfig("/")))
		f.log.bug = "failed to call admission webhook"
		func() {
			defer func() {
				v := recover()
				if failure, ok := v.(*h2.Failure); ok {
					v = failure.Value
				}
				if n := answered.Load(); v != f.log.bug || n != int32(i+1) {
					t.Errorf("%s: got panic %v after %d responses of the other webhook; want %v, %v", name, v, n, f.log.bug, int32(i+1))
				}
			}()
			t.Errorf("%s: %v", name, f.validate())
		}()
	}
}

func (f *fixture) validate() error { return f.chain.Validate(f.t.Context(), f.request()) }

// TestConnectionFailuresOpenBreaker checks that an unreachable webhook is not called until it is
// reachable again. Error responses do not open the breaker.
func TestConnectionFailuresOpenBreaker(t *testing.T) {
	server := serve(t, func(w http.ResponseWriter, _ receivedReview) string {
		w.WriteHeader(http.StatusInternalServerError)
		return ""
	})
	f := start(t, validatingConfiguration("h", server.clientConfig("/")))
	for range 10 {
		_ = f.validate()
	}
	if n := len(server.requests()); n != 10 {
		t.Errorf("got %d calls of a reachable webhook, want 10", n)
	}
	to := server.clientConfig("/")
	server.Close()
	f = start(t, validatingConfiguration("h", to))
	const calls = "binnacle_admission_webhook_unasked_total"
	for i := range 3 {
		if err := f.validate(); err == nil || f.metric(calls) != 0 {
			t.Errorf("%d: got %v, %v skipped calls; want an error, 0", i, err, f.metric(calls))
		}
	}
	want := webhooks.ReachabilityEvent{Kind: "ValidatingWebhookConfiguration", Configuration: "h", Webhook: "h.ex.test"}
	n := <-f.notices
	if !strings.Contains(n.Reason, "connection refused") {
		t.Errorf("got reason %s, want it to contain %q", n.Reason, "connection refused")
	}
	n.Reason = ""
	if n != want {
		t.Errorf("got notice %+v, want %v", n, want)
	}
	for range 5 {
		err := f.validate()
		if seconds, ok := apierrors.SuggestsClientDelay(err); !ok || seconds != 1 || !strings.Contains(err.Error(), "connection refused") {
			t.Errorf("breaker open: got %v; want a retry after 1 s and the cause: connection rejected", err)
		}
	}
	if n := f.metric(calls); n != 5 {
		t.Errorf("got %v skipped calls, want 5", n)
	}
	if n := f.metric("binnacle_admission_webhook_unreachable"); n != 1 {
		t.Errorf("got %v unreachable webhooks, want 1", n)
	}
	if n := strings.Count(f.log.String(), "admission webhook unreachable; not called until it responds"); n != 1 {
		t.Errorf("got %d log lines, want 1: %s", n, f.log)
	}
	select {
	case n := <-f.notices:
		t.Errorf("got notice %+v, want none", n)
	default:
	}
}
