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

// TestRequestsAreRejectedUntilConfigurationsAreLoaded checks that before the webhook configurations
// are loaded, requests are rejected and no webhook is called.
func TestRequestsAreRejectedUntilConfigurationsAreLoaded(t *testing.T) {
	const notYet = `403 Forbidden: configmaps "c" is forbidden: not yet ready to handle request`
	never := func() bool { return false }
	for name, c := range map[string]struct {
		change func(*webhooks.Config)
		want   string // error
		calls  int
	}{
		"loaded":                    {change: func(*webhooks.Config) {}, want: "", calls: 1},
		"not loaded":                {change: func(c *webhooks.Config) { c.Ready = never }, want: notYet, calls: 0},
		"loaded during the request": {change: loadedAfterWait, want: "", calls: 1},
		"cache is behind": {change: func(c *webhooks.Config) {
			c.Configurations.WaitForWrites = func(context.Context) error { return errors.New("behind") }
		}, want: "no status: behind", calls: 0},
		"unreadable configuration": {change: func(c *webhooks.Config) { c.Configurations.Decode = failDecoding }, want: notYet, calls: 0},
	} {
		server := serve(t, respondAllowed)
		for _, hookType := range []string{"validating", "mutating"} {
			before := len(server.requests())
			var got error
			if hookType == "validating" {
				f := startWith(t, c.change, validatingConfiguration("h", server.clientConfig("/")))
				got = f.validate()
			} else {
				f := startWith(t, c.change, mutatingConfiguration("h", server.clientConfig("/")))
				got = f.chain.Mutate(t.Context(), f.request())
			}
			if calls := len(server.requests()) - before; statusText(got) != c.want || calls != c.calls {
				t.Errorf("%s, %s webhook: got error %q and %d calls, want error %q and %d calls",
					name, hookType, statusText(got), calls, c.want, c.calls)
			}
		}
	}
}

// loadedAfterWait makes the configurations ready when WaitForWrites is called.
func loadedAfterWait(c *webhooks.Config) {
	ready := false
	c.Ready = func() bool { return ready }
	c.Configurations.WaitForWrites = func(context.Context) error { ready = true; return nil }
}

// failDecoding is a decoder of configurations that always fails.
func failDecoding(*objects.Entry) (metav1.Object, error) { return nil, errors.New("damaged") }

// TestUnreadableConfigurationRejectsAllRequests checks that one unreadable configuration among others
// rejects all requests.
func TestUnreadableConfigurationRejectsAllRequests(t *testing.T) {
	server := serve(t, respondAllowed)
	f := startWith(t, func(c *webhooks.Config) {
		decode := c.Configurations.Decode
		c.Configurations.Decode = func(e *objects.Entry) (metav1.Object, error) {
			if e.Name() == "bad" {
				return failDecoding(e)
			}
			return decode(e)
		}
	}, validatingConfiguration("bad", server.clientConfig("/")), validatingConfiguration("good", server.clientConfig("/")))
	for i := range 2 { // the second request uses the compiled state
		const want = "not yet ready to handle request"
		if got := statusText(f.validate()); !strings.Contains(got, want) {
			t.Errorf("request %d: got error %q, want it to contain %q", i, got, want)
		}
		if calls := len(server.requests()); calls != 0 {
			t.Errorf("request %d: got %d webhook calls, want none", i, calls)
		}
	}
	if !strings.Contains(f.log.String(), "damaged") {
		t.Errorf("got log\n%s\nwant it to contain the decoding error \"damaged\"", f.log)
	}
}

// TestExemptRequestsCallNoWebhooks checks that webhooks are not called for webhook configurations,
// nor for writes of the server at its start. CallsExternal reports whether a webhook is called.
func TestExemptRequestsCallNoWebhooks(t *testing.T) {
	server := serve(t, func(http.ResponseWriter, receivedReview) string { return `"allowed":false` })
	f := start(t, validatingConfiguration("h", server.clientConfig("/")))
	if err := f.chain.Validate(requesttest.WithStartup(t.Context()), f.request()); err != nil {
		t.Errorf("write at the start of the server: Validate = %v, want no error", err)
	}
	writeConfiguration := f.request()
	writeConfiguration.Resource = f.catalog.Resource(admissionv1.SchemeGroupVersion.WithResource("validatingwebhookconfigurations"))
	writeConfiguration.Kind, writeConfiguration.Namespace = writeConfiguration.Resource.GVK(), ""
	writeConfiguration.Object = &admissionv1.ValidatingWebhookConfiguration{}
	if err := f.chain.Validate(t.Context(), writeConfiguration); err != nil {
		t.Errorf("write of a webhook configuration: Validate = %v, want no error", err)
	}
	if calls := len(server.requests()); calls != 0 {
		t.Errorf("got %d webhook calls for exempt requests, want none", calls)
	}

	onlyPods := start(t, validatingConfiguration("h", server.clientConfig("/"), func(w *admissionv1.ValidatingWebhook) {
		w.Rules[0].Resources = []string{"pods"}
	}))
	if err := onlyPods.validate(); err != nil {
		t.Errorf("webhook for pods: Validate of a config map = %v, want no error", err)
	}
	neverReady := func(c *webhooks.Config) { c.Ready = func() bool { return false } }
	notReady := startWith(t, neverReady, validatingConfiguration("h", server.clientConfig("/")))
	for _, c := range []struct {
		request string
		f       *fixture
		r       *admission.Request
		want    bool
	}{
		{request: "write of a webhook configuration", f: f, r: writeConfiguration, want: false},
		{request: "request that the webhook matches", f: f, r: f.request(), want: true},
		{request: "request for another resource", f: onlyPods, r: onlyPods.request(), want: false},
		{request: "request that is rejected because configurations are not ready", f: notReady, r: notReady.request(), want: false},
	} {
		if got := c.f.chain.CallsExternal(t.Context(), c.r); got != c.want {
			t.Errorf("CallsExternal of a %s = %t, want %t", c.request, got, c.want)
		}
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

// TestSelectorsAndConditionsSelectRequests checks which requests reach a webhook. A failing lookup of
// the namespace rejects the request with every failurePolicy. An invalid selector or condition
// rejects it only with Fail. Validating and mutating webhooks behave alike.
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
		fail, ignore string // part of the error with that failurePolicy
	}{
		"no selector":                       {hook: withConditions(), fail: denied, ignore: denied},
		"namespace selector matches":        {hook: inNamespaceWith("x"), labels: map[string]string{"is": "x"}, fail: denied, ignore: denied},
		"namespace selector does not match": {hook: inNamespaceWith("x"), labels: map[string]string{"is": "y"}},
		"namespace lookup fails":            {hook: inNamespaceWith("x"), fail: "500 InternalError", ignore: "500 InternalError"},
		"object selector does not match": {hook: func(w *admissionv1.ValidatingWebhook) {
			w.ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
		}},
		"invalid object selector": {
			hook: func(w *admissionv1.ValidatingWebhook) { w.ObjectSelector = invalidSelector },
			fail: `failed calling webhook "h.ex.test": objectSelector: `,
		},
		"no known review version": {
			hook: func(w *admissionv1.ValidatingWebhook) { w.AdmissionReviewVersions = []string{"v9"} },
			fail: "does not accept known AdmissionReview versions",
		},
		"second review version is known": {
			hook: func(w *admissionv1.ValidatingWebhook) { w.AdmissionReviewVersions = []string{"v9", "v1beta1", "v1"} },
			fail: denied, ignore: denied,
		},
		"conditions are true":                 {hook: withConditions("request.name == 'c'", "object.data.k == 'v'"), fail: denied, ignore: denied},
		"one condition is false":              {hook: withConditions("true", "request.name == 'other'")},
		"condition asks a denying authorizer": {hook: withConditions("authorizer.group('').resource('pods').check('get').allowed()")},
		"condition fails": {
			hook: withConditions("object.data.none == 'v'"),
			fail: "403 Forbidden: configmaps \"c\" is forbidden: expression 'object.data.none == 'v'' resulted in error",
		},
		"condition does not compile": {hook: withConditions("nothing"), fail: "compilation failed"},
	} {
		for policy, want := range map[admissionv1.FailurePolicyType]string{admissionv1.Fail: c.fail, admissionv1.Ignore: c.ignore} {
			server := serve(t, func(http.ResponseWriter, receivedReview) string { return `"allowed":false` })
			configure := func(config *webhooks.Config) {
				config.Namespaces, config.Authorizer = labelledNamespace{c.labels}, denyAll{}
			}
			withPolicy := func(w *admissionv1.ValidatingWebhook) { w.FailurePolicy = &policy }
			f := startWith(t, configure, validatingConfiguration("h", server.clientConfig("/"), c.hook, withPolicy))
			mutatingFixture := startWith(t, configure,
				mutatingConfiguration("h", server.clientConfig("/m"), func(w *admissionv1.MutatingWebhook) {
					v := admissionv1.ValidatingWebhook{
						Rules:                   w.Rules,
						AdmissionReviewVersions: w.AdmissionReviewVersions,
						FailurePolicy:           &policy,
					}
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
				t.Errorf("%s, failurePolicy %s: mutating webhook: got error %q after %d calls; validating webhook: got error %q after %d calls; want the same",
					name, policy, mutatingResult, calls, got, len(server.requests())-calls)
			}
			server.forget(calls)
			if want == "" && got != "" || !strings.Contains(got, want) ||
				(len(server.requests()) == 1) != strings.Contains(want, denied) {
				t.Errorf("%s, failurePolicy %s: got error %q and %d calls, want error %q",
					name, policy, got, len(server.requests()), want)
			}
		}
	}
}

// denyAll denies everything.
type denyAll struct{}

func (denyAll) Authorize(context.Context, *authorizer.Attributes) (authorizer.Decision, string, error) {
	return authorizer.Deny, "", nil
}

// TestFailedMutatingWebhookFollowsFailurePolicy checks the error, the audit annotations and the
// metrics of a mutating webhook that fails and may be called ifNeeded.
func TestFailedMutatingWebhookFollowsFailurePolicy(t *testing.T) {
	broken := serve(t, func(w http.ResponseWriter, _ receivedReview) string { w.WriteHeader(500); return "" })
	adds := serve(t, func(http.ResponseWriter, receivedReview) string {
		return patch(`[{"op":"add","path":"/data/a","value":"b"}]`)
	})
	ifNeeded := admissionv1.IfNeededReinvocationPolicy
	some := admissionv1.SideEffectClassSome
	none := admissionv1.SideEffectClassNone
	const head = "mutation.webhook.admission.k8s.io/"
	for name, c := range map[string]struct {
		policy      admissionv1.FailurePolicyType
		dryRun      bool
		sideEffects bool
		want        string   // prefix of the error
		audit       []string // keys of audit annotations
		failedOpen  float64  // calls counted as failed open
	}{
		"Fail": {
			policy: admissionv1.Fail,
			want:   `500 InternalError: Internal error occurred: failed calling webhook "a.ex.test"`,
			audit:  []string{head + "round_0_index_0"},
		},
		"Ignore": {policy: admissionv1.Ignore, failedOpen: 2, audit: []string{
			"failed-open." + head + "round_0_index_0", "failed-open." + head + "round_1_index_0",
			head + "round_0_index_0", head + "round_0_index_1", head + "round_1_index_0",
		}},
		"Fail, side effects": {
			policy: admissionv1.Fail, sideEffects: true,
			want:  `500 InternalError: Internal error occurred: failed calling webhook "a.ex.test"`,
			audit: []string{head + "round_0_index_0"},
		},
		"Fail, dry run": {
			policy: admissionv1.Fail, dryRun: true,
			want:  `500 InternalError: Internal error occurred: failed calling webhook "a.ex.test"`,
			audit: []string{head + "round_0_index_0"},
		},
		"Ignore, dry run, side effects": {
			policy: admissionv1.Ignore, dryRun: true, sideEffects: true,
			want:  `400 BadRequest: admission webhook "a.ex.test" does not support dry run`,
			audit: []string{head + "round_0_index_0"},
		},
	} {
		f := start(t, mutatingConfiguration("a", broken.clientConfig("/"), func(w *admissionv1.MutatingWebhook) {
			w.FailurePolicy, w.ReinvocationPolicy = &c.policy, &ifNeeded
			w.SideEffects = &none
			if c.sideEffects {
				w.SideEffects = &some
			}
		}), mutatingConfiguration("b", adds.clientConfig("/")))
		r := f.request()
		r.DryRun = c.dryRun
		got := statusText(f.chain.Mutate(t.Context(), r))
		keys := slices.Sorted(maps.Keys(r.Annotations()))
		if !strings.HasPrefix(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%s: got error %q, want %q", name, got, c.want)
		}
		if !slices.Equal(keys, c.audit) {
			t.Errorf("%s: got audit annotations %q, want %q", name, keys, c.audit)
		}
		if n := f.metric("apiserver_admission_webhook_fail_open_count"); n != c.failedOpen {
			t.Errorf("%s: got %v calls counted as failed open, want %v", name, n, c.failedOpen)
		}
		if n := f.metric("apiserver_admission_webhook_rejection_count"); (n == 1) != (c.want != "") {
			t.Errorf("%s: got %v calls counted as rejected, want 1 only with an error, %q", name, n, c.want)
		}
		if patched := slices.Collect(maps.Keys(r.Details())); (len(patched) == 1) != (c.want == "") {
			t.Errorf("%s: got patch annotations %q, want one unless the call fails", name, patched)
		}
	}
}

// TestCanceledRequestTimesOutBeforeMutation checks that failurePolicy Ignore does not admit a request
// that was canceled before the call.
func TestCanceledRequestTimesOutBeforeMutation(t *testing.T) {
	server := serve(t, respondAllowed)
	ignorePolicy := admissionv1.Ignore
	f := start(
		t,
		mutatingConfiguration(
			"h",
			server.clientConfig("/"),
			func(w *admissionv1.MutatingWebhook) { w.FailurePolicy = &ignorePolicy },
		),
	)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := f.chain.Mutate(ctx, f.request()); !strings.HasPrefix(statusText(err), "504 Timeout: ") {
		t.Errorf("Mutate: got %v, want a timeout", err)
	}
}

// TestCanceledRequestTimesOutDuringValidation checks that failurePolicy Ignore does not admit a
// request that was canceled during the call.
func TestCanceledRequestTimesOutDuringValidation(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	server := serve(t, func(http.ResponseWriter, receivedReview) string { cancel(); panic(http.ErrAbortHandler) })
	ignorePolicy := admissionv1.Ignore
	f := start(
		t,
		validatingConfiguration(
			"h",
			server.clientConfig("/"),
			func(w *admissionv1.ValidatingWebhook) { w.FailurePolicy = &ignorePolicy },
		),
	)
	if err := f.chain.Validate(ctx, f.request()); !strings.HasPrefix(statusText(err), "504 Timeout: ") {
		t.Errorf("Validate: got %v, want a timeout", err)
	}
}

// TestPatchOfDeletionIsRejected checks that a patch of a request without an object is an error with
// every failurePolicy.
func TestPatchOfDeletionIsRejected(t *testing.T) {
	server := serve(t, func(http.ResponseWriter, receivedReview) string {
		return patch(`[{"op":"add","path":"/data/a","value":"b"}]`)
	})
	ignorePolicy := admissionv1.Ignore
	f := start(
		t,
		mutatingConfiguration(
			"h",
			server.clientConfig("/"),
			func(w *admissionv1.MutatingWebhook) { w.FailurePolicy = &ignorePolicy },
		),
	)
	r := f.request()
	r.Operation, r.OldObject, r.Object, r.Options = admission.Delete, r.Object, nil, nil
	if got := statusText(f.chain.Mutate(t.Context(), r)); !strings.Contains(got,
		"attempted to modify the object, which is not supported for this operation") {
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
		f := start(
			t,
			mutatingConfiguration(
				"h",
				server.clientConfig("/"),
				func(w *admissionv1.MutatingWebhook) { w.AdmissionReviewVersions = older },
			),
		)
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
	if !strings.Contains(fmt.Sprint(families), `name:"code" value:"404"`) &&
		!strings.Contains(fmt.Sprint(families), `name:"code"  value:"404"`) {
		t.Error("404 is not counted")
	}
}
