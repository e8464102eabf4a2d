package webhooks_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/libs/authorizer"
	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/admission/webhooks"
	"binnacle/services/apiserver/internal/cache/objects"
	"binnacle/services/apiserver/internal/request/requesttest"
)

// TestRequestsAreRejectedUntilConfigurationsAreLoaded checks that no webhook is called before.
func TestRequestsAreRejectedUntilConfigurationsAreLoaded(t *testing.T) {
	const notYet = `403 Forbidden: configmaps "c" is forbidden: not yet ready to handle request`
	never := func() bool { return false }
	for name, c := range map[string]struct {
		change func(*webhooks.Config)
		want   string
		asked  int
	}{
		"loaded":                    {change: func(*webhooks.Config) {}, want: "", asked: 1},
		"not loaded":                {change: func(c *webhooks.Config) { c.Ready = never }, want: notYet, asked: 0},
		"loaded during the request": {change: func(c *webhooks.Config) { loadedBySeeing(c) }, want: "", asked: 1},
		"cache is behind": {change: func(c *webhooks.Config) {
			c.Configurations.WaitForWrites = func(context.Context) error { return errors.New("behind") }
		}, want: "no status: behind", asked: 0},
		"unreadable configuration": {change: func(c *webhooks.Config) { c.Configurations.Decode = unreadable }, want: notYet, asked: 0},
	} {
		server := serve(t, respondAllowed)
		for _, sort := range []string{"validating", "mutating"} {
			before := len(server.requests())
			var got error
			if sort == "validating" {
				f := startWith(t, c.change, validatingConfiguration("h", server.clientConfig("/")))
				got = f.validate()
			} else {
				f := startWith(t, c.change, mutatingConfiguration("h", server.clientConfig("/")))
				got = f.chain.Mutate(t.Context(), f.request())
			}
			if asked := len(server.requests()) - before; statusText(got) != c.want || asked != c.asked {
				t.Errorf("%s, %s: got %v, %d calls; want %q, %d", name, sort, got, asked, c.want, c.asked)
			}
		}
	}
}

// loadedBySeeing makes the configurations ready when WaitForWrites is called.
func loadedBySeeing(c *webhooks.Config) {
	seen := false
	c.Ready = func() bool { return seen }
	c.Configurations.WaitForWrites = func(context.Context) error { seen = true; return nil }
}

func unreadable(*objects.Entry) (metav1.Object, error) { return nil, errors.New("damaged") }

// TestUnreadableConfigurationRejectsAllRequests checks that one unreadable configuration is enough.
func TestUnreadableConfigurationRejectsAllRequests(t *testing.T) {
	server := serve(t, respondAllowed)
	f := startWith(t, func(c *webhooks.Config) {
		decode := c.Configurations.Decode
		c.Configurations.Decode = func(e *objects.Entry) (metav1.Object, error) {
			if e.Name() == "bad" {
				return unreadable(e)
			}
			return decode(e)
		}
	}, validatingConfiguration("bad", server.clientConfig("/")), validatingConfiguration("good", server.clientConfig("/")))
	for range 2 { // the second request uses the compiled state
		if err := f.validate(); !strings.Contains(statusText(err), "not yet ready to handle request") {
			t.Errorf("got error %v, want it to contain %q", err, "not yet ready to handle request")
		}
		if calls := len(server.requests()); calls != 0 {
			t.Errorf("got %d calls, want none", calls)
		}
	}
	if !strings.Contains(f.log.String(), "damaged") {
		t.Errorf("got log %s, want the error", f.log)
	}
}

// TestExemptRequestsCallNoWebhooks covers webhook configurations, and writes at the start of the
// server.
func TestExemptRequestsCallNoWebhooks(t *testing.T) {
	server := serve(t, func(http.ResponseWriter, receivedReview) string { return `"allowed":false` })
	f := start(t, validatingConfiguration("h", server.clientConfig("/")))
	own := f.chain.Validate(requesttest.WithStartup(t.Context()), f.request())
	r := f.request()
	r.Resource = f.catalog.Resource(admissionv1.SchemeGroupVersion.WithResource("validatingwebhookconfigurations"))
	r.Kind, r.Namespace, r.Object = r.Resource.GVK(), "", &admissionv1.ValidatingWebhookConfiguration{}
	if err := errors.Join(own, f.chain.Validate(t.Context(), r)); err != nil || len(server.requests()) != 0 {
		t.Errorf("got %v, %d calls; want no error, length 0", err, len(server.requests()))
	}
	if f.chain.CallsExternal(t.Context(), r) {
		t.Error("CallsExternal of a request that no webhook matches: got true, want false")
	}
	if !f.chain.CallsExternal(t.Context(), f.request()) {
		t.Error("CallsExternal of a request that a webhook matches: got false, want true")
	}
	only := start(t, validatingConfiguration("h", server.clientConfig("/"), func(w *admissionv1.ValidatingWebhook) { w.Rules[0].Resources = []string{"pods"} }))
	if err := only.validate(); err != nil || only.chain.CallsExternal(t.Context(), only.request()) {
		t.Errorf("another resource: got error %v, want none and no external calls", err)
	}
	unknown := startWith(t, func(c *webhooks.Config) { c.Ready = func() bool { return false } }, validatingConfiguration("h", server.clientConfig("/")))
	if unknown.chain.CallsExternal(t.Context(), unknown.request()) {
		t.Error("CallsExternal returned true for a request that is rejected")
	}
}

// labelledNamespace returns fixed namespace labels, or an error without labels.
type labelledNamespace struct{ labels map[string]string }

func (l labelledNamespace) Labels(context.Context, string) (map[string]string, error) {
	if l.labels == nil {
		return nil, errors.New("no response")
	}
	return l.labels, nil
}

// TestSelectorsAndConditionsSelectRequests checks both kinds of webhooks. An error of a selector
// rejects the request, regardless of the failurePolicy. An error of a condition is subject to it.
func TestSelectorsAndConditionsSelectRequests(t *testing.T) {
	inNamespaceWith := func(v string) func(*admissionv1.ValidatingWebhook) {
		return func(w *admissionv1.ValidatingWebhook) {
			w.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"is": v}}
		}
	}
	invalidSelector := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Odd"}}}
	withConditions := func(all ...string) func(*admissionv1.ValidatingWebhook) {
		return func(w *admissionv1.ValidatingWebhook) {
			for i, e := range all {
				w.MatchConditions = append(w.MatchConditions, admissionv1.MatchCondition{Name: fmt.Sprint(i), Expression: e})
			}
		}
	}
	const denied = `admission webhook "h.ex.test" denied`
	for name, c := range map[string]struct {
		hook         func(*admissionv1.ValidatingWebhook)
		labels       map[string]string
		fail, ignore string // part of the error
	}{
		"everything":             {hook: withConditions(), fail: denied, ignore: denied},
		"a namespace":            {hook: inNamespaceWith("x"), labels: map[string]string{"is": "x"}, fail: denied, ignore: denied},
		"another namespace":      {hook: inNamespaceWith("x"), labels: map[string]string{"is": "y"}},
		"namespace lookup fails": {hook: inNamespaceWith("x"), fail: "500 InternalError", ignore: "500 InternalError"},
		"an object": {hook: func(w *admissionv1.ValidatingWebhook) {
			w.ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
		}},
		"a selector that cannot be read": {
			hook: func(w *admissionv1.ValidatingWebhook) { w.ObjectSelector = invalidSelector },
			fail: `failed calling webhook "h.ex.test": objectSelector: `,
		},
		"no version that is known": {
			hook: func(w *admissionv1.ValidatingWebhook) { w.AdmissionReviewVersions = []string{"v9"} },
			fail: "does not accept known AdmissionReview versions",
		},
		"the second version is known": {
			hook: func(w *admissionv1.ValidatingWebhook) { w.AdmissionReviewVersions = []string{"v9", "v1beta1", "v1"} },
			fail: denied, ignore: denied,
		},
		"a condition that holds":     {hook: withConditions("request.name == 'c'", "object.data.k == 'v'"), fail: denied, ignore: denied},
		"a condition that does not":  {hook: withConditions("true", "request.name == 'other'")},
		"one that may not be judged": {hook: withConditions("authorizer.group('').resource('pods').check('get').allowed()")},
		"one that fails": {
			hook: withConditions("object.data.none == 'v'"),
			fail: "403 Forbidden: configmaps \"c\" is forbidden: expression 'object.data.none == 'v'' resulted in error",
		},
		"one that does not compile": {hook: withConditions("nothing"), fail: "compilation failed"},
	} {
		for policy, want := range map[admissionv1.FailurePolicyType]string{admissionv1.Fail: c.fail, admissionv1.Ignore: c.ignore} {
			server := serve(t, func(http.ResponseWriter, receivedReview) string { return `"allowed":false` })
			f := startWith(t, func(c2 *webhooks.Config) { c2.Namespaces, c2.Authorizer = labelledNamespace{c.labels}, denyAll{} },
				validatingConfiguration("h", server.clientConfig("/"), c.hook, func(w *admissionv1.ValidatingWebhook) { w.FailurePolicy = &policy }))
			mutatingFixture := startWith(t, func(c2 *webhooks.Config) { c2.Namespaces, c2.Authorizer = labelledNamespace{c.labels}, denyAll{} },
				mutatingConfiguration("h", server.clientConfig("/m"), func(w *admissionv1.MutatingWebhook) {
					v := admissionv1.ValidatingWebhook{Rules: w.Rules, AdmissionReviewVersions: w.AdmissionReviewVersions, FailurePolicy: &policy}
					c.hook(&v)
					w.FailurePolicy = v.FailurePolicy
					w.NamespaceSelector = v.NamespaceSelector
					w.ObjectSelector = v.ObjectSelector
					w.AdmissionReviewVersions, w.MatchConditions = v.AdmissionReviewVersions, v.MatchConditions
				}))
			mutatingResult := statusText(mutatingFixture.chain.Mutate(t.Context(), mutatingFixture.request()))
			calls := len(server.requests())
			got := statusText(f.validate())
			if mutatingResult != got || 2*calls != len(server.requests()) {
				t.Errorf("%s, %s: mutating webhook: got %q, want that of the validating one, %q, after %d calls of each", name, policy, mutatingResult, got, calls)
			}
			server.forget(calls)
			if want == "" && got != "" || !strings.Contains(got, want) || (len(server.requests()) == 1) != strings.Contains(want, denied) {
				t.Errorf("%s, %s: got %q, %d calls; want %q", name, policy, got, len(server.requests()), want)
			}
		}
	}
}

// denyAll denies everything.
type denyAll struct{}

func (denyAll) Authorize(context.Context, *authorizer.Attributes) (authorizer.Decision, string, error) {
	return authorizer.Deny, "", nil
}

// TestFailedMutatingWebhookFollowsFailurePolicy also checks audit annotations and metrics.
func TestFailedMutatingWebhookFollowsFailurePolicy(t *testing.T) {
	broken := serve(t, func(w http.ResponseWriter, _ receivedReview) string { w.WriteHeader(500); return "" })
	adds := serve(t, func(http.ResponseWriter, receivedReview) string {
		return patch(`[{"op":"add","path":"/data/a","value":"b"}]`)
	})
	again := admissionv1.IfNeededReinvocationPolicy
	some := admissionv1.SideEffectClassSome
	none := admissionv1.SideEffectClassNone
	const head = "mutation.webhook.admission.k8s.io/"
	for name, c := range map[string]struct {
		policy admissionv1.FailurePolicyType
		dry    bool
		some   bool // side effects
		want   string
		audit  []string // keys
		open   float64
	}{
		"Fail": {
			policy: admissionv1.Fail,
			want:   `500 InternalError: Internal error occurred: failed calling webhook "a.ex.test"`,
			audit:  []string{head + "round_0_index_0"},
		},
		"Ignore": {policy: admissionv1.Ignore, open: 2, audit: []string{"failed-open." + head + "round_0_index_0", "failed-open." + head + "round_1_index_0",
			head + "round_0_index_0", head + "round_0_index_1", head + "round_1_index_0"}},
		"Fail, side effects": {
			policy: admissionv1.Fail, some: true,
			want:  `500 InternalError: Internal error occurred: failed calling webhook "a.ex.test"`,
			audit: []string{head + "round_0_index_0"},
		},
		"Fail, dry run": {
			policy: admissionv1.Fail, dry: true,
			want:  `500 InternalError: Internal error occurred: failed calling webhook "a.ex.test"`,
			audit: []string{head + "round_0_index_0"},
		},
		"dry run": {
			policy: admissionv1.Ignore, dry: true, some: true,
			want:  `400 BadRequest: admission webhook "a.ex.test" does not support dry run`,
			audit: []string{head + "round_0_index_0"},
		},
	} {
		f := start(t, mutatingConfiguration("a", broken.clientConfig("/"), func(w *admissionv1.MutatingWebhook) {
			w.FailurePolicy, w.ReinvocationPolicy = &c.policy, &again
			w.SideEffects = &none
			if c.some {
				w.SideEffects = &some
			}
		}), mutatingConfiguration("b", adds.clientConfig("/")))
		r := f.request()
		r.DryRun = c.dry
		got := statusText(f.chain.Mutate(t.Context(), r))
		keys := slices.Sorted(maps.Keys(r.Annotations()))
		if !strings.HasPrefix(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%s: got error %q, want %q", name, got, c.want)
		}
		if !slices.Equal(keys, c.audit) {
			t.Errorf("%s: got audit annotations %q, want %q", name, keys, c.audit)
		}
		if n := f.metric("apiserver_admission_webhook_fail_open_count"); n != c.open {
			t.Errorf("%s: got %v calls counted as failed open, want %v", name, n, c.open)
		}
		if n := f.metric("apiserver_admission_webhook_rejection_count"); (n == 1) != (c.want != "") {
			t.Errorf("%s: got %v calls counted as rejected, want 1 only with an error, %q", name, n, c.want)
		}
		if patched := slices.Collect(maps.Keys(r.Details())); (len(patched) == 1) != (c.want == "") {
			t.Errorf("%s: got patch annotations %q, want one unless the call fails", name, patched)
		}
	}
}

// TestCanceledRequestTimesOutBeforeMutation checks that failurePolicy Ignore does not apply.
func TestCanceledRequestTimesOutBeforeMutation(t *testing.T) {
	server := serve(t, respondAllowed)
	ignorePolicy := admissionv1.Ignore
	f := start(t, mutatingConfiguration("h", server.clientConfig("/"), func(w *admissionv1.MutatingWebhook) { w.FailurePolicy = &ignorePolicy }))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := f.chain.Mutate(ctx, f.request()); !strings.HasPrefix(statusText(err), "504 Timeout: ") {
		t.Errorf("Mutate: got %v, want a timeout", err)
	}
}

// TestCanceledRequestTimesOutDuringValidation checks that failurePolicy Ignore does not apply.
func TestCanceledRequestTimesOutDuringValidation(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	server := serve(t, func(http.ResponseWriter, receivedReview) string { cancel(); panic(http.ErrAbortHandler) })
	ignorePolicy := admissionv1.Ignore
	f := start(t, validatingConfiguration("h", server.clientConfig("/"), func(w *admissionv1.ValidatingWebhook) { w.FailurePolicy = &ignorePolicy }))
	if err := f.chain.Validate(ctx, f.request()); !strings.HasPrefix(statusText(err), "504 Timeout: ") {
		t.Errorf("Validate: got %v, want a timeout", err)
	}
}

// TestPatchOfDeletionIsRejected checks that the failurePolicy does not matter.
func TestPatchOfDeletionIsRejected(t *testing.T) {
	server := serve(t, func(http.ResponseWriter, receivedReview) string {
		return patch(`[{"op":"add","path":"/data/a","value":"b"}]`)
	})
	ignorePolicy := admissionv1.Ignore
	f := start(t, mutatingConfiguration("h", server.clientConfig("/"), func(w *admissionv1.MutatingWebhook) { w.FailurePolicy = &ignorePolicy }))
	r := f.request()
	r.Operation, r.OldObject, r.Object, r.Options = admission.Delete, r.Object, nil, nil
	if got := statusText(f.chain.Mutate(t.Context(), r)); !strings.Contains(got, "attempted to modify the object, which is not supported for this operation") {
		t.Errorf("patch of a deletion: got %s, want it rejected", got)
	}
	if got := f.chain.Mutate(t.Context(), r); !strings.Contains(statusText(got), "attempted") {
		t.Errorf("second patch of a deletion: got %v, want it rejected", got)
	}
	empty := serve(t, func(http.ResponseWriter, receivedReview) string { return patch("[]") })
	if err := start(t, mutatingConfiguration("h", empty.clientConfig("/"))).chain.Mutate(t.Context(), r); err != nil {
		t.Errorf("empty patch: got %v, want no error", err)
	}
	if q := server.requests(); len(q) != 2 || q[0].Request.Object != nil || q[0].Request.OldObject == nil {
		t.Errorf("got calls %+v; want length 2, nil, non-nil", q)
	}
}

// TestV1beta1ReviewsNeedNoUIDOrPatchType covers AdmissionReview v1beta1.
func TestV1beta1ReviewsNeedNoUIDOrPatchType(t *testing.T) {
	older := []string{"v1beta1"}
	response := ""
	server := serve(t, func(w http.ResponseWriter, _ receivedReview) string {
		fmt.Fprintf(w, `{"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview"%s}`, response)
		return ""
	})
	for _, c := range []struct{ response, want string }{
		{response: `,"response":{"allowed":true,"patch":"` + strings.Split(patch(`[{"op":"add","path":"/data/a","value":"b"}]`), `"patch":"`)[1] + `}`,
			want: ""},
		{response: `,"response":{"allowed":true}`, want: ""},
		{response: `,"response":{"allowed":false}`, want: "denied the request without explanation"},
		{response: ``, want: "webhook response was absent"},
	} {
		response = c.response
		f := start(t, mutatingConfiguration("h", server.clientConfig("/"), func(w *admissionv1.MutatingWebhook) { w.AdmissionReviewVersions = older }))
		r := f.request()
		got := statusText(f.chain.Mutate(t.Context(), r))
		if !strings.Contains(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%s: %q, want %q", c.response, got, c.want)
		}
		if patched := r.Object.(*corev1.ConfigMap).Data["a"] == "b"; patched != strings.Contains(c.response, "patch") {
			t.Errorf("%s: got patched: %t, want %t", c.response, patched, !patched)
		}
		if q := server.requests(); q[len(q)-1].APIVersion != "admission.k8s.io/v1beta1" {
			t.Errorf("got a review of %s, want \"admission.k8s.io/v1beta1\"", q[len(q)-1].APIVersion)
		}
	}
}

// TestAppliedPatchesAreAnnotated also checks that failures are counted under the status code of the
// webhook.
func TestAppliedPatchesAreAnnotated(t *testing.T) {
	for response, details := range map[string]int{
		patch(`[{"op":"remove","path":"/data"}]`): 1, `"allowed":true`: 0,
		strings.Replace(patch(`[{"op":"remove","path":"/data"}]`), "true", "false", 1): 0,
	} {
		server := serve(t, func(http.ResponseWriter, receivedReview) string { return response })
		f := start(t, mutatingConfiguration("h", server.clientConfig("/")))
		r := f.request()
		_ = f.chain.Mutate(t.Context(), r)
		if got := r.Details(); len(got) != details {
			t.Errorf("%s: got %v, want length %v", response, got, details)
		}
	}
	server := serve(t, func(w http.ResponseWriter, _ receivedReview) string { w.WriteHeader(http.StatusNotFound); return "" })
	f := start(t, validatingConfiguration("h", server.clientConfig("/")))
	_ = f.validate()
	families, err := f.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(fmt.Sprint(families), `name:"code" value:"404"`) && !strings.Contains(fmt.Sprint(families), `name:"code"  value:"404"`) {
		t.Error("404 is not counted")
	}
}
