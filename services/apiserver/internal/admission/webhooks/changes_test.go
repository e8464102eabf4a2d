package webhooks_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/admission/webhooks"
	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/cel/expressions"
	"binnacle/services/apiserver/internal/registry"
)

// TestConfigurationChangeAppliesToNextRequest checks that the next request uses a changed
// configuration. A change keeps the breakers of other webhooks. A configuration that becomes corrupt
// keeps its previous state.
func TestConfigurationChangeAppliesToNextRequest(t *testing.T) {
	// 1. Open the breaker of an unreachable webhook.
	server, closed := serve(t, respondAllowed), serve(t, nil)
	unreachable := closed.clientConfig("/")
	closed.Close()
	fixture := start(t, validatingConfiguration("a", unreachable))
	encode := func(c *admissionregistrationv1.ValidatingWebhookConfiguration) []byte {
		c.UID = "u"
		value, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
	for range 3 { // the number of failures that open a breaker
		_ = fixture.validate()
	}
	<-fixture.notices

	// 2. Add another webhook. The breaker of the first one stays open.
	const skippedCalls = "binnacle_admission_webhook_unasked_total"
	fixture.put("b", encode(validatingConfiguration("b", server.clientConfig("/1"))))
	if err := fixture.validate(); err == nil || fixture.metric(skippedCalls) != 1 {
		t.Errorf("after another webhook was added: got error %v and %v skipped calls of the unreachable one, want an error and 1",
			err, fixture.metric(skippedCalls))
	}
	fixture.remove("a")

	// 3. Change the configuration of the reachable webhook, which is called at another path then.
	for _, step := range []struct {
		name  string
		value []byte // new configuration, or nil for no change
		want  string // path of the call
	}{
		{name: "no change", value: nil, want: "/1"},
		{name: "changed path", value: encode(validatingConfiguration("b", server.clientConfig("/2"))), want: "/2"},
		{name: "corrupt configuration", value: []byte("corrupt"), want: "/2"},
		{name: "replaced configuration", value: encode(validatingConfiguration("b", server.clientConfig("/3"))), want: "/3"},
	} {
		if step.value != nil {
			fixture.put("b", step.value)
		}
		server.forgetRequests()
		if err := fixture.validate(); err != nil {
			t.Errorf("%s: Validate: got error %v, want none", step.name, err)
		}
		if calls := server.requests(); len(calls) != 1 || calls[0].path != step.want {
			t.Errorf("%s: got calls %+v, want one of %s", step.name, calls, step.want)
		}
	}
}

// TestWebhookReceivesTimeout checks that a webhook receives its timeout, 10s by default, as a query
// parameter.
func TestWebhookReceivesTimeout(t *testing.T) {
	server := serve(t, respondAllowed)
	seven := int32(7)
	for want, seconds := range map[string]*int32{"timeout=10s": nil, "timeout=7s": &seven} {
		fixture := start(
			t,
			validatingConfiguration(
				"h",
				server.clientConfig("/"),
				func(w *admissionregistrationv1.ValidatingWebhook) { w.TimeoutSeconds = seconds },
			),
		)
		server.forgetRequests()
		err := fixture.validate()
		if err != nil || server.requests()[0].query != want || server.requests()[0].Request.Options.Kind != "CreateOptions" {
			t.Errorf("got error %v and call %+v, want no error and a call with %s and CreateOptions", err, server.requests()[0], want)
		}
	}
}

// TestConditionsFailWithoutCompiler checks that a webhook with match conditions fails if no
// compiler is available.
func TestConditionsFailWithoutCompiler(t *testing.T) {
	server := serve(t, respondAllowed)
	for policy, want := range map[admissionregistrationv1.FailurePolicyType]string{admissionregistrationv1.Fail: `failed calling webhook "h.ex.test": broken`, admissionregistrationv1.Ignore: ""} {
		fixture := startWith(t, func(c *webhooks.Config) {
			c.Compiler = func() (*expressions.Compiler, error) { return nil, errors.New("broken") }
		}, validatingConfiguration("h", server.clientConfig("/"), func(w *admissionregistrationv1.ValidatingWebhook) {
			w.FailurePolicy, w.MatchConditions = &policy, []admissionregistrationv1.MatchCondition{{Name: "a", Expression: "true"}}
		}))
		if got := statusText(fixture.validate()); !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("failurePolicy %s: got error %q, want %q", policy, got, want)
		}
		if calls := len(server.requests()); calls != 0 {
			t.Errorf("failurePolicy %s: got %d calls, want none", policy, calls)
		}
	}
}

// TestWebhookSeesMatchingVersion checks that a webhook sees the version that its rules name, and
// that its patch applies. A failed conversion rejects the request, regardless of the failurePolicy.
func TestWebhookSeesMatchingVersion(t *testing.T) {
	ignorePolicy := admissionregistrationv1.Ignore
	rules := []admissionregistrationv1.RuleWithOperations{{
		Operations: []admissionregistrationv1.OperationType{"*"},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{"autoscaling"}, APIVersions: []string{"v2"}, Resources: []string{"*"}},
	}}
	for name, test := range map[string]struct {
		withoutV1      bool // v1 cannot be converted from the start
		withoutV1Later bool // v1 cannot be converted after the call
		wantCalls      int
		wantRejected   bool // by the mutating webhook
	}{
		"converted":                {wantCalls: 1},
		"cannot be converted":      {withoutV1: true, wantRejected: true},
		"cannot be converted back": {withoutV1Later: true, wantCalls: 1, wantRejected: true},
	} {
		for _, hookType := range []string{"mutating", "validating"} {
			var withoutV1 atomic.Bool
			withoutV1.Store(test.withoutV1)
			server := serve(t, func(_ http.ResponseWriter, review receivedReview) string {
				withoutV1.Store(test.withoutV1 || test.withoutV1Later)
				if review.Request.Kind.Version != "v2" {
					t.Errorf("%s: got a request for %v, want v2", name, review.Request.Kind)
				}
				if hookType == "validating" {
					return `"allowed":true`
				}
				return patch(`[{"op":"replace","path":"/spec/maxReplicas","value":7}]`)
			})
			var f *fixture
			change := func(w *webhooks.Config) {
				w.Family = func(*registry.Kind) (all []*apiset.Resource) {
					for _, version := range []string{autoscalingv1.SchemeGroupVersion.Version, autoscalingv2.SchemeGroupVersion.Version} {
						kind := f.catalog.Resource(
							autoscalingv1.SchemeGroupVersion.WithResource("horizontalpodautoscalers").GroupResource().WithVersion(version),
						)
						if version == "v2" || !withoutV1.Load() {
							all = append(all, &apiset.Resource{Kind: kind, Coder: f.codec.ForKind(kind)})
						}
					}
					return all
				}
			}
			if hookType == "mutating" {
				f = startWith(
					t,
					change,
					mutatingConfiguration(
						"h",
						server.clientConfig("/"),
						func(w *admissionregistrationv1.MutatingWebhook) { w.FailurePolicy, w.Rules = &ignorePolicy, rules },
					),
				)
			} else {
				f = startWith(
					t,
					change,
					validatingConfiguration(
						"h",
						server.clientConfig("/"),
						func(w *admissionregistrationv1.ValidatingWebhook) { w.FailurePolicy, w.Rules = &ignorePolicy, rules },
					),
				)
			}
			kind := f.catalog.Resource(autoscalingv1.SchemeGroupVersion.WithResource("horizontalpodautoscalers"))
			autoscaler := &autoscalingv1.HorizontalPodAutoscaler{
				ObjectMeta: metav1.ObjectMeta{Name: "h", Namespace: "ns"},
				Spec:       autoscalingv1.HorizontalPodAutoscalerSpec{MaxReplicas: 3},
			}
			req := &admission.Request{
				Operation: admission.Create, Resource: kind, Kind: kind.GVK(), Namespace: "ns", Name: "h",
				Options: &metav1.CreateOptions{}, Object: autoscaler,
			}
			admit, wantReplicas := f.chain.Validate, int32(3)
			wantRejected := test.wantRejected && !test.withoutV1Later // validation converts nothing back
			if hookType == "mutating" {
				admit, wantRejected = f.chain.Mutate, test.wantRejected
				if !wantRejected {
					wantReplicas = 7
				}
			}
			err := admit(t.Context(), req)
			if isInternal := strings.HasPrefix(statusText(err), "500 "); (err != nil) != wantRejected || isInternal != wantRejected {
				t.Errorf("%s, %s webhook: got error %v, want an internal error: %t", name, hookType, err, wantRejected)
			}
			if calls := len(server.requests()); calls != test.wantCalls {
				t.Errorf("%s, %s webhook: got %d calls, want %d", name, hookType, calls, test.wantCalls)
			}
			if autoscaler.Spec.MaxReplicas != wantReplicas {
				t.Errorf("%s, %s webhook: got %d replicas, want %d", name, hookType, autoscaler.Spec.MaxReplicas, wantReplicas)
			}
		}
	}
}
