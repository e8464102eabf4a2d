package webhooks_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
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
	for name, test := range map[string]struct {
		change    func(*webhooks.Config)
		want      string // error
		wantCalls int
	}{
		"loaded":                    {change: func(*webhooks.Config) {}, want: "", wantCalls: 1},
		"not loaded":                {change: func(c *webhooks.Config) { c.Ready = never }, want: notYet, wantCalls: 0},
		"loaded during the request": {change: loadedAfterWait, want: "", wantCalls: 1},
		"cache is behind": {change: func(c *webhooks.Config) {
			c.Configurations.WaitForWrites = func(context.Context) error { return errors.New("behind") }
		}, want: "no status: behind", wantCalls: 0},
		"corrupt configuration": {change: func(c *webhooks.Config) { c.Configurations.Decode = failDecoding }, want: notYet, wantCalls: 0},
	} {
		server := serve(t, respondAllowed)
		for _, hookType := range []string{"validating", "mutating"} {
			before := len(server.requests())
			var got error
			if hookType == "validating" {
				f := startWith(t, test.change, validatingConfiguration("h", server.clientConfig("/")))
				got = f.validate()
			} else {
				f := startWith(t, test.change, mutatingConfiguration("h", server.clientConfig("/")))
				got = f.chain.Mutate(t.Context(), f.request())
			}
			if calls := len(server.requests()) - before; statusText(got) != test.want || calls != test.wantCalls {
				t.Errorf("%s, %s webhook: got error %q and %d calls, want error %q and %d calls",
					name, hookType, statusText(got), calls, test.want, test.wantCalls)
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
func failDecoding(*objects.Entry) (metav1.Object, error) { return nil, errors.New("cannot decode") }

// TestCorruptConfigurationRejectsAllRequests checks that one corrupt configuration among others
// rejects all requests.
func TestCorruptConfigurationRejectsAllRequests(t *testing.T) {
	server := serve(t, respondAllowed)
	fixture := startWith(t, func(c *webhooks.Config) {
		decode := c.Configurations.Decode
		c.Configurations.Decode = func(entry *objects.Entry) (metav1.Object, error) {
			if entry.Name() == "corrupt" {
				return failDecoding(entry)
			}
			return decode(entry)
		}
	}, validatingConfiguration("corrupt", server.clientConfig("/")), validatingConfiguration("intact", server.clientConfig("/")))
	for i := range 2 { // the second request uses the compiled state
		const want = "not yet ready to handle request"
		if got := statusText(fixture.validate()); !strings.Contains(got, want) {
			t.Errorf("request %d: got error %q, want it to contain %q", i, got, want)
		}
		if calls := len(server.requests()); calls != 0 {
			t.Errorf("request %d: got %d webhook calls, want none", i, calls)
		}
	}
	if !strings.Contains(fixture.log.String(), "cannot decode") {
		t.Errorf("got log\n%s\nwant it to contain the decoding error \"cannot decode\"", fixture.log)
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
	writeConfiguration.Resource = f.catalog.Resource(admissionregistrationv1.SchemeGroupVersion.WithResource("validatingwebhookconfigurations"))
	writeConfiguration.Kind, writeConfiguration.Namespace = writeConfiguration.Resource.GVK(), ""
	writeConfiguration.Object = &admissionregistrationv1.ValidatingWebhookConfiguration{}
	if err := f.chain.Validate(t.Context(), writeConfiguration); err != nil {
		t.Errorf("write of a webhook configuration: Validate = %v, want no error", err)
	}
	if calls := len(server.requests()); calls != 0 {
		t.Errorf("got %d webhook calls for exempt requests, want none", calls)
	}

	onlyPods := start(t, validatingConfiguration("h", server.clientConfig("/"), func(w *admissionregistrationv1.ValidatingWebhook) {
		w.Rules[0].Resources = []string{"pods"}
	}))
	if err := onlyPods.validate(); err != nil {
		t.Errorf("webhook for pods: Validate of a config map = %v, want no error", err)
	}
	neverReady := func(c *webhooks.Config) { c.Ready = func() bool { return false } }
	notReady := startWith(t, neverReady, validatingConfiguration("h", server.clientConfig("/")))
	for _, test := range []struct {
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
		if got := test.f.chain.CallsExternal(t.Context(), test.r); got != test.want {
			t.Errorf("CallsExternal of a %s = %t, want %t", test.request, got, test.want)
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
	inNamespaceWith := func(label string) func(*admissionregistrationv1.ValidatingWebhook) {
		return func(webhook *admissionregistrationv1.ValidatingWebhook) {
			webhook.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"is": label}}
		}
	}
	invalidSelector := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Odd"}}}
	withConditions := func(expressions ...string) func(*admissionregistrationv1.ValidatingWebhook) {
		return func(webhook *admissionregistrationv1.ValidatingWebhook) {
			for i, e := range expressions {
				webhook.MatchConditions = append(webhook.MatchConditions, admissionregistrationv1.MatchCondition{Name: fmt.Sprint(i), Expression: e})
			}
		}
	}
	const denied = `admission webhook "h.ex.test" denied`
	for name, test := range map[string]struct {
		hook   func(*admissionregistrationv1.ValidatingWebhook)
		labels map[string]string // of the namespace; nil if the lookup fails
		// Part of the error with the failurePolicy Fail or Ignore; "" if the request is admitted.
		wantFail, wantIgnore string
	}{
		"no selector":                       {hook: withConditions(), wantFail: denied, wantIgnore: denied},
		"namespace selector matches":        {hook: inNamespaceWith("x"), labels: map[string]string{"is": "x"}, wantFail: denied, wantIgnore: denied},
		"namespace selector does not match": {hook: inNamespaceWith("x"), labels: map[string]string{"is": "y"}},
		"namespace lookup fails":            {hook: inNamespaceWith("x"), wantFail: "500 InternalError", wantIgnore: "500 InternalError"},
		"object selector does not match": {hook: func(webhook *admissionregistrationv1.ValidatingWebhook) {
			webhook.ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
		}},
		"invalid object selector": {
			hook:     func(webhook *admissionregistrationv1.ValidatingWebhook) { webhook.ObjectSelector = invalidSelector },
			wantFail: `failed calling webhook "h.ex.test": objectSelector: `,
		},
		"no known review version": {
			hook: func(webhook *admissionregistrationv1.ValidatingWebhook) {
				webhook.AdmissionReviewVersions = []string{"v9"}
			},
			wantFail: "does not accept known AdmissionReview versions",
		},
		"second review version is known": {
			hook: func(webhook *admissionregistrationv1.ValidatingWebhook) {
				webhook.AdmissionReviewVersions = []string{"v9", "v1beta1", "v1"}
			},
			wantFail: denied, wantIgnore: denied,
		},
		"conditions are true":                 {hook: withConditions("request.name == 'c'", "object.data.k == 'v'"), wantFail: denied, wantIgnore: denied},
		"one condition is false":              {hook: withConditions("true", "request.name == 'other'")},
		"condition asks a denying authorizer": {hook: withConditions("authorizer.group('').resource('pods').check('get').allowed()")},
		"condition fails": {
			hook:     withConditions("object.data.none == 'v'"),
			wantFail: "403 Forbidden: configmaps \"c\" is forbidden: expression 'object.data.none == 'v'' resulted in error",
		},
		"condition does not compile": {hook: withConditions("nothing"), wantFail: "compilation failed"},
	} {
		for policy, want := range map[admissionregistrationv1.FailurePolicyType]string{admissionregistrationv1.Fail: test.wantFail, admissionregistrationv1.Ignore: test.wantIgnore} {
			server := serve(t, func(http.ResponseWriter, receivedReview) string { return `"allowed":false` })
			// The mutating webhook has the same selectors and conditions as the validating one.
			configure := func(config *webhooks.Config) {
				config.Namespaces, config.Authorizer = labelledNamespace{test.labels}, denyAll{}
			}
			withPolicy := func(webhook *admissionregistrationv1.ValidatingWebhook) { webhook.FailurePolicy = &policy }
			fixture := startWith(t, configure, validatingConfiguration("h", server.clientConfig("/"), test.hook, withPolicy))
			mutatingFixture := startWith(t, configure,
				mutatingConfiguration("h", server.clientConfig("/m"), func(mutatingWebhook *admissionregistrationv1.MutatingWebhook) {
					validatingWebhook := admissionregistrationv1.ValidatingWebhook{
						Rules:                   mutatingWebhook.Rules,
						AdmissionReviewVersions: mutatingWebhook.AdmissionReviewVersions,
						FailurePolicy:           &policy,
					}
					test.hook(&validatingWebhook)
					mutatingWebhook.FailurePolicy = validatingWebhook.FailurePolicy
					mutatingWebhook.NamespaceSelector = validatingWebhook.NamespaceSelector
					mutatingWebhook.ObjectSelector = validatingWebhook.ObjectSelector
					mutatingWebhook.AdmissionReviewVersions, mutatingWebhook.MatchConditions = validatingWebhook.AdmissionReviewVersions, validatingWebhook.MatchConditions
				}))
			wantCalls := 0
			if want == denied {
				wantCalls = 1
			}
			for hookType, admit := range map[string]func() error{
				"mutating":   func() error { return mutatingFixture.chain.Mutate(t.Context(), mutatingFixture.request()) },
				"validating": fixture.validate,
			} {
				server.forgetRequests()
				got := statusText(admit())
				if (got == "") != (want == "") || !strings.Contains(got, want) {
					t.Errorf("%s, %s webhook, failurePolicy %s: got error %q, want one that contains %q, or none if that is empty",
						name, hookType, policy, got, want)
				}
				if calls := len(server.requests()); calls != wantCalls {
					t.Errorf("%s, %s webhook, failurePolicy %s: got %d calls, want %d", name, hookType, policy, calls, wantCalls)
				}
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
	failing := serve(t, func(w http.ResponseWriter, _ receivedReview) string {
		w.WriteHeader(500)
		return ""
	})
	addsKey := serve(t, func(http.ResponseWriter, receivedReview) string {
		return patch(`[{"op":"add","path":"/data/a","value":"b"}]`)
	})
	ifNeeded := admissionregistrationv1.IfNeededReinvocationPolicy
	some := admissionregistrationv1.SideEffectClassSome
	none := admissionregistrationv1.SideEffectClassNone
	const prefix = "mutation.webhook.admission.k8s.io/" // of audit annotations; see Kubernetes' audit documentation
	for name, test := range map[string]struct {
		policy         admissionregistrationv1.FailurePolicyType
		isDryRun       bool
		hasSideEffects bool
		want           string   // prefix of the error
		wantAudit      []string // keys of audit annotations
		wantFailedOpen float64  // calls counted as failed open
	}{
		"Fail": {
			policy:    admissionregistrationv1.Fail,
			want:      `500 InternalError: Internal error occurred: failed calling webhook "a.ex.test"`,
			wantAudit: []string{prefix + "round_0_index_0"},
		},
		"Ignore": {policy: admissionregistrationv1.Ignore, wantFailedOpen: 2, wantAudit: []string{
			"failed-open." + prefix + "round_0_index_0", "failed-open." + prefix + "round_1_index_0",
			prefix + "round_0_index_0", prefix + "round_0_index_1", prefix + "round_1_index_0",
		}},
		"Fail, side effects": {
			policy: admissionregistrationv1.Fail, hasSideEffects: true,
			want:      `500 InternalError: Internal error occurred: failed calling webhook "a.ex.test"`,
			wantAudit: []string{prefix + "round_0_index_0"},
		},
		"Fail, dry run": {
			policy: admissionregistrationv1.Fail, isDryRun: true,
			want:      `500 InternalError: Internal error occurred: failed calling webhook "a.ex.test"`,
			wantAudit: []string{prefix + "round_0_index_0"},
		},
		"Ignore, dry run, side effects": {
			policy: admissionregistrationv1.Ignore, isDryRun: true, hasSideEffects: true,
			want:      `400 BadRequest: admission webhook "a.ex.test" does not support dry run`,
			wantAudit: []string{prefix + "round_0_index_0"},
		},
	} {
		fixture := start(t, mutatingConfiguration("a", failing.clientConfig("/"), func(mutatingWebhook *admissionregistrationv1.MutatingWebhook) {
			mutatingWebhook.FailurePolicy, mutatingWebhook.ReinvocationPolicy = &test.policy, &ifNeeded
			mutatingWebhook.SideEffects = &none
			if test.hasSideEffects {
				mutatingWebhook.SideEffects = &some
			}
		}), mutatingConfiguration("b", addsKey.clientConfig("/")))
		req := fixture.request()
		req.DryRun = test.isDryRun
		got := statusText(fixture.chain.Mutate(t.Context(), req))
		keys := slices.Sorted(maps.Keys(req.Annotations()))
		if !strings.HasPrefix(got, test.want) || test.want == "" && got != "" {
			t.Errorf("%s: got error %q, want %q", name, got, test.want)
		}
		if !slices.Equal(keys, test.wantAudit) {
			t.Errorf("%s: got audit annotations %q, want %q", name, keys, test.wantAudit)
		}
		if n := fixture.metric("apiserver_admission_webhook_fail_open_count"); n != test.wantFailedOpen {
			t.Errorf("%s: got %v calls counted as failed open, want %v", name, n, test.wantFailedOpen)
		}
		if n := fixture.metric("apiserver_admission_webhook_rejection_count"); (n == 1) != (test.want != "") {
			t.Errorf("%s: got %v calls counted as rejected, want 1 if there is an error, here %q", name, n, test.want)
		}
		if patched := slices.Collect(maps.Keys(req.Details())); (len(patched) == 1) != (test.want == "") {
			t.Errorf("%s: got patch annotations %q, want one unless the call fails", name, patched)
		}
	}
}

// TestCanceledRequestTimesOutBeforeMutation checks that failurePolicy Ignore does not admit a request
// that was canceled before the call.
func TestCanceledRequestTimesOutBeforeMutation(t *testing.T) {
	server := serve(t, respondAllowed)
	ignorePolicy := admissionregistrationv1.Ignore
	fixture := start(
		t,
		mutatingConfiguration(
			"h",
			server.clientConfig("/"),
			func(w *admissionregistrationv1.MutatingWebhook) { w.FailurePolicy = &ignorePolicy },
		),
	)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := fixture.chain.Mutate(ctx, fixture.request()); !strings.HasPrefix(statusText(err), "504 Timeout: ") {
		t.Errorf("Mutate: got %v, want a timeout", err)
	}
}

// TestCanceledRequestTimesOutDuringValidation checks that failurePolicy Ignore does not admit a
// request that was canceled during the call.
func TestCanceledRequestTimesOutDuringValidation(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	server := serve(t, func(http.ResponseWriter, receivedReview) string { cancel(); panic(http.ErrAbortHandler) })
	ignorePolicy := admissionregistrationv1.Ignore
	fixture := start(
		t,
		validatingConfiguration(
			"h",
			server.clientConfig("/"),
			func(w *admissionregistrationv1.ValidatingWebhook) { w.FailurePolicy = &ignorePolicy },
		),
	)
	if err := fixture.chain.Validate(ctx, fixture.request()); !strings.HasPrefix(statusText(err), "504 Timeout: ") {
		t.Errorf("Validate: got %v, want a timeout", err)
	}
}

// TestPatchOfDeletionIsRejected checks that a patch of a request without an object is an error with
// every failurePolicy.
func TestPatchOfDeletionIsRejected(t *testing.T) {
	server := serve(t, func(http.ResponseWriter, receivedReview) string {
		return patch(`[{"op":"add","path":"/data/a","value":"b"}]`)
	})
	ignorePolicy := admissionregistrationv1.Ignore
	fixture := start(
		t,
		mutatingConfiguration(
			"h",
			server.clientConfig("/"),
			func(w *admissionregistrationv1.MutatingWebhook) { w.FailurePolicy = &ignorePolicy },
		),
	)
	req := fixture.request()
	req.Operation, req.OldObject, req.Object, req.Options = admission.Delete, req.Object, nil, nil
	if got := statusText(fixture.chain.Mutate(t.Context(), req)); !strings.Contains(got,
		"attempted to modify the object, which is not supported for this operation") {
		t.Errorf("patch of a deletion: got error %q, want one that says that the operation does not support it", got)
	}
	if got := fixture.chain.Mutate(t.Context(), req); !strings.Contains(statusText(got), "attempted") {
		t.Errorf("second patch of a deletion: got %v, want it rejected", got)
	}
	empty := serve(t, func(http.ResponseWriter, receivedReview) string { return patch("[]") })
	if err := start(t, mutatingConfiguration("h", empty.clientConfig("/"))).chain.Mutate(t.Context(), req); err != nil {
		t.Errorf("empty patch: got %v, want no error", err)
	}
	if q := server.requests(); len(q) != 2 || q[0].Request.Object != nil || q[0].Request.OldObject == nil {
		t.Errorf("got calls %+v; want two, with the old object and without an object", q)
	}
}

// TestV1beta1ReviewsNeedNoUIDOrPatchType checks that a response in AdmissionReview v1beta1 needs
// neither the UID of the request nor a patchType.
func TestV1beta1ReviewsNeedNoUIDOrPatchType(t *testing.T) {
	older := []string{"v1beta1"}
	response := ""
	server := serve(t, func(w http.ResponseWriter, _ receivedReview) string {
		fmt.Fprintf(w, `{"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview"%s}`, response)
		return ""
	})
	addKey := base64.StdEncoding.EncodeToString([]byte(`[{"op":"add","path":"/data/a","value":"b"}]`))
	for name, test := range map[string]struct {
		response    string // field of the review, after a comma
		want        string // part of the error
		wantPatched bool
	}{
		"allowed with a patch": {response: `,"response":{"allowed":true,"patch":"` + addKey + `"}`, wantPatched: true},
		"allowed":              {response: `,"response":{"allowed":true}`},
		"rejected":             {response: `,"response":{"allowed":false}`, want: "denied the request without explanation"},
		"no response":          {response: ``, want: "webhook response was absent"},
	} {
		response = test.response
		fixture := start(
			t,
			mutatingConfiguration(
				"h",
				server.clientConfig("/"),
				func(w *admissionregistrationv1.MutatingWebhook) { w.AdmissionReviewVersions = older },
			),
		)
		req := fixture.request()
		got := statusText(fixture.chain.Mutate(t.Context(), req))
		if !strings.Contains(got, test.want) || test.want == "" && got != "" {
			t.Errorf("%s: got error %q, want one that contains %q, or none if that is empty", name, got, test.want)
		}
		if isPatched := req.Object.(*corev1.ConfigMap).Data["a"] == "b"; isPatched != test.wantPatched {
			t.Errorf("%s: got a patched object: %t, want %t", name, isPatched, test.wantPatched)
		}
		if q := server.requests(); q[len(q)-1].APIVersion != "admission.k8s.io/v1beta1" {
			t.Errorf("%s: got a review of %s, want \"admission.k8s.io/v1beta1\"", name, q[len(q)-1].APIVersion)
		}
	}
}

// TestAppliedPatchesAreAnnotated checks that the audit details contain a patch only if it was applied.
func TestAppliedPatchesAreAnnotated(t *testing.T) {
	removeData := patch(`[{"op":"remove","path":"/data"}]`)
	for name, test := range map[string]struct {
		response    string
		wantDetails int
	}{
		"applied patch":        {response: removeData, wantDetails: 1},
		"no patch":             {response: `"allowed":true`, wantDetails: 0},
		"patch of a rejection": {response: strings.Replace(removeData, "true", "false", 1), wantDetails: 0},
	} {
		server := serve(t, func(http.ResponseWriter, receivedReview) string { return test.response })
		f := start(t, mutatingConfiguration("h", server.clientConfig("/")))
		r := f.request()
		_ = f.chain.Mutate(t.Context(), r)
		if got := r.Details(); len(got) != test.wantDetails {
			t.Errorf("%s: got audit details %v, want %d of them", name, got, test.wantDetails)
		}
	}
}

// TestFailedCallsAreCountedByCode checks that a failed call is counted under the HTTP status code of
// the webhook.
func TestFailedCallsAreCountedByCode(t *testing.T) {
	server := serve(t, func(w http.ResponseWriter, _ receivedReview) string { w.WriteHeader(http.StatusNotFound); return "" })
	f := start(t, validatingConfiguration("h", server.clientConfig("/")))
	_ = f.validate()
	families, err := f.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	codes := map[string]bool{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			for _, label := range m.GetLabel() {
				if label.GetName() == "code" {
					codes[label.GetValue()] = true
				}
			}
		}
	}
	if !codes["404"] {
		t.Errorf("got metrics with the codes %v, want 404 among them", codes)
	}
}
