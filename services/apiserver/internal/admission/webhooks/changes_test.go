package webhooks_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/admission/webhooks"
	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/cel/expressions"
	"binnacle/services/apiserver/internal/registry"
)

// TestConfigurationChangeAppliesToNextRequest also checks that a change keeps the breakers of other
// webhooks, and that a configuration that becomes unreadable keeps its previous state.
func TestConfigurationChangeAppliesToNextRequest(t *testing.T) {
	server, gone := serve(t, respondAllowed), serve(t, nil)
	dead := gone.clientConfig("/")
	gone.Close()
	f := start(t, validatingConfiguration("a", dead))
	stored := func(c *admissionv1.ValidatingWebhookConfiguration) []byte {
		c.UID = "u"
		value, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
	for range 3 {
		_ = f.validate()
	}
	<-f.notices
	const unasked = "binnacle_admission_webhook_unasked_total"
	f.put("b", stored(validatingConfiguration("b", server.clientConfig("/1"))))
	if err := f.validate(); err == nil || f.metric(unasked) != 1 {
		t.Errorf("with another webhook: got %v, %v requests rejected without a call; want an error, 1", err, f.metric(unasked))
	}
	f.put("a", nil)
	for i, step := range []struct {
		value []byte
		want  string // path of the call
	}{
		{want: "/1"},
		{value: stored(validatingConfiguration("b", server.clientConfig("/2"))), want: "/2"},
		{value: []byte("damaged"), want: "/2"},
		{value: stored(validatingConfiguration("b", server.clientConfig("/3"))), want: "/3"},
	} {
		if step.value != nil {
			f.put("b", step.value)
		}
		server.forget(len(server.requests()))
		if err := f.validate(); err != nil {
			t.Errorf("step %d: %v, want no error", i, err)
		}
		if q := server.requests(); len(q) != 1 || q[0].path != step.want {
			t.Errorf("step %d: got calls %+v, want one of %s", i, q, step.want)
		}
	}
}

// TestWebhookReceivesTimeout checks configured and default timeouts.
func TestWebhookReceivesTimeout(t *testing.T) {
	server := serve(t, respondAllowed)
	seven := int32(7)
	for want, seconds := range map[string]*int32{"timeout=10s": nil, "timeout=7s": &seven} {
		f := start(t, validatingConfiguration("h", server.clientConfig("/"), func(w *admissionv1.ValidatingWebhook) { w.TimeoutSeconds = seconds }))
		server.forget(len(server.requests()))
		if err := f.validate(); err != nil || server.requests()[0].query != want || server.requests()[0].Request.Options.Kind != "CreateOptions" {
			t.Errorf("got %v, call %+v; want %s", err, server.requests()[0], want)
		}
	}
}

// TestConditionsFailWithoutCompiler checks that a webhook with match conditions fails if no
// compiler is available.
func TestConditionsFailWithoutCompiler(t *testing.T) {
	server := serve(t, respondAllowed)
	for policy, want := range map[admissionv1.FailurePolicyType]string{admissionv1.Fail: `failed calling webhook "h.ex.test": broken`, admissionv1.Ignore: ""} {
		f := startWith(t, func(c *webhooks.Config) {
			c.Compiler = func() (*expressions.Compiler, error) { return nil, errors.New("broken") }
		}, validatingConfiguration("h", server.clientConfig("/"), func(w *admissionv1.ValidatingWebhook) {
			w.FailurePolicy, w.MatchConditions = &policy, []admissionv1.MatchCondition{{Name: "a", Expression: "true"}}
		}))
		if got := statusText(f.validate()); !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("%s: got error %q, want %q", policy, got, want)
		}
		if calls := len(server.requests()); calls != 0 {
			t.Errorf("%s: got %d calls, want none", policy, calls)
		}
	}
}

// TestWebhookSeesMatchingVersion checks that a webhook sees the version that its rules name, and
// that its patch applies. A failed conversion rejects the request, regardless of the failurePolicy.
func TestWebhookSeesMatchingVersion(t *testing.T) {
	ignorePolicy := admissionv1.Ignore
	rules := []admissionv1.RuleWithOperations{{Operations: []admissionv1.OperationType{"*"}, Rule: admissionv1.Rule{APIGroups: []string{"autoscaling"}, APIVersions: []string{"v2"}, Resources: []string{"*"}}}}
	for name, c := range map[string]struct {
		lost  bool // the version of the request cannot be converted
		later bool // after the call
		asked int
		wrong bool
	}{
		"converted":                {asked: 1},
		"cannot be converted":      {lost: true, wrong: true},
		"cannot be converted back": {later: true, asked: 1, wrong: true},
	} {
		for _, sort := range []string{"mutating", "validating"} {
			var lost atomic.Bool
			lost.Store(c.lost)
			server := serve(t, func(_ http.ResponseWriter, q receivedReview) string {
				lost.Store(c.lost || c.later)
				if q.Request.Kind.Version != "v2" {
					t.Errorf("%s: got a request for %v, want v2", name, q.Request.Kind)
				}
				if sort == "validating" {
					return `"allowed":true`
				}
				return patch(`[{"op":"replace","path":"/spec/maxReplicas","value":7}]`)
			})
			var f *fixture
			change := func(w *webhooks.Config) {
				w.Family = func(*registry.Kind) (all []*apiset.Resource) {
					for _, v := range []string{autoscalingv1.SchemeGroupVersion.Version, autoscalingv2.SchemeGroupVersion.Version} {
						k := f.catalog.Resource(autoscalingv1.SchemeGroupVersion.WithResource("horizontalpodautoscalers").GroupResource().WithVersion(v))
						if v == "v2" || !lost.Load() {
							all = append(all, &apiset.Resource{Kind: k, Coder: f.codec.ForKind(k)})
						}
					}
					return all
				}
			}
			if sort == "mutating" {
				f = startWith(t, change, mutatingConfiguration("h", server.clientConfig("/"), func(w *admissionv1.MutatingWebhook) { w.FailurePolicy, w.Rules = &ignorePolicy, rules }))
			} else {
				f = startWith(t, change, validatingConfiguration("h", server.clientConfig("/"), func(w *admissionv1.ValidatingWebhook) { w.FailurePolicy, w.Rules = &ignorePolicy, rules }))
			}
			k := f.catalog.Resource(autoscalingv1.SchemeGroupVersion.WithResource("horizontalpodautoscalers"))
			o := &autoscalingv1.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Name: "h", Namespace: "ns"}, Spec: autoscalingv1.HorizontalPodAutoscalerSpec{MaxReplicas: 3}}
			r := &admission.Request{Operation: admission.Create, Resource: k, Kind: k.GVK(), Namespace: "ns", Name: "h", Options: &metav1.CreateOptions{}, Object: o}
			err := f.chain.Validate(t.Context(), r)
			want, replicas := c.wrong, int32(3)
			if sort == "mutating" {
				if err = f.chain.Mutate(t.Context(), r); !want {
					replicas = 7
				}
			} else if c.later {
				want = false // validation converts nothing back
			}
			if (err != nil) != want || want && !strings.HasPrefix(statusText(err), "500 ") {
				t.Errorf("%s, %s: got error %v, want an internal error: %t", name, sort, err, want)
			}
			if calls := len(server.requests()); calls != c.asked {
				t.Errorf("%s, %s: got %d calls, want %d", name, sort, calls, c.asked)
			}
			if o.Spec.MaxReplicas != replicas {
				t.Errorf("%s, %s: got %d replicas, want %d", name, sort, o.Spec.MaxReplicas, replicas)
			}
		}
	}
}
