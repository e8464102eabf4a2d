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

// TestChangesOfConfigurations count with the next request; what is known of the others stays known, and
// what one said before it could not be read any more stays in force.
func TestChangesOfConfigurations(t *testing.T) {
	h, gone := serve(t, func(http.ResponseWriter, question) string { return `"allowed":true` }), serve(t, nil)
	dead := gone.at("/")
	gone.Close()
	b := start(t, validating("a", dead))
	stored := func(c *admissionv1.ValidatingWebhookConfiguration) []byte {
		c.UID = "u"
		value, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
	for range 3 {
		_ = b.one()
	}
	<-b.notices
	const unasked = "binnacle_admission_webhook_unasked_total"
	b.put("b", stored(validating("b", h.at("/1"))))
	if err := b.one(); err == nil || b.metric(unasked) != 1 {
		t.Errorf("beside another: %v, %v refused without asking", err, b.metric(unasked))
	}
	b.put("a", nil)
	for i, step := range []struct {
		value []byte
		want  string // where it is asked
	}{{nil, "/1"}, {stored(validating("b", h.at("/2"))), "/2"}, {[]byte("damaged"), "/2"}, {stored(validating("b", h.at("/3"))), "/3"}} {
		if step.value != nil {
			b.put("b", step.value)
		}
		h.forget(len(h.questions()))
		if err := b.one(); err != nil {
			t.Errorf("step %d: %v", i, err)
		}
		if q := h.questions(); len(q) != 1 || q[0].path != step.want {
			t.Errorf("step %d: asked %+v", i, q)
		}
	}
}

// TestTimesAreTold to the webhook: its own, or those of who has none.
func TestTimesAreTold(t *testing.T) {
	h := serve(t, func(http.ResponseWriter, question) string { return `"allowed":true` })
	seven := int32(7)
	for want, seconds := range map[string]*int32{"timeout=10s": nil, "timeout=7s": &seven} {
		b := start(t, validating("h", h.at("/"), func(w *admissionv1.ValidatingWebhook) { w.TimeoutSeconds = seconds }))
		h.forget(len(h.questions()))
		if err := b.one(); err != nil || h.questions()[0].query != want || h.questions()[0].Request.Options.Kind != "CreateOptions" {
			t.Errorf("%v, asked %+v; want %s", err, h.questions()[0], want)
		}
	}
}

// TestWithoutExpressions conditions cannot be judged, and who has some has failed.
func TestWithoutExpressions(t *testing.T) {
	h := serve(t, func(http.ResponseWriter, question) string { return `"allowed":true` })
	for policy, want := range map[admissionv1.FailurePolicyType]string{admissionv1.Fail: `failed calling webhook "h.ex.test": broken`, admissionv1.Ignore: ""} {
		b := startWith(t, func(c *webhooks.Config) {
			c.Compiler = func() (*expressions.Compiler, error) { return nil, errors.New("broken") }
		}, validating("h", h.at("/"), func(w *admissionv1.ValidatingWebhook) {
			w.FailurePolicy, w.MatchConditions = &policy, []admissionv1.MatchCondition{{Name: "a", Expression: "true"}}
		}))
		if got := told(b.one()); !strings.Contains(got, want) || want == "" && got != "" || len(h.questions()) != 0 {
			t.Errorf("%s: %q", policy, got)
		}
	}
}

// TestOtherVersions: who wants to see another one sees it, and what he makes of it counts. What cannot be
// shown, or brought back, refuses the request whatever the failurePolicy.
func TestOtherVersions(t *testing.T) {
	ignore := admissionv1.Ignore
	rules := []admissionv1.RuleWithOperations{{Operations: []admissionv1.OperationType{"*"}, Rule: admissionv1.Rule{APIGroups: []string{"autoscaling"}, APIVersions: []string{"v2"}, Resources: []string{"*"}}}}
	for name, c := range map[string]struct {
		lost  bool // the request's own version cannot be converted
		later bool // from the answer on
		asked int
		wrong bool
	}{
		"shown": {asked: 1}, "it cannot be shown": {lost: true, wrong: true}, "it cannot be brought back": {later: true, asked: 1, wrong: true},
	} {
		for _, sort := range []string{"mutating", "validating"} {
			var lost atomic.Bool
			lost.Store(c.lost)
			h := serve(t, func(_ http.ResponseWriter, q question) string {
				lost.Store(c.lost || c.later)
				if q.Request.Kind.Version != "v2" {
					t.Errorf("%s: asked about %v", name, q.Request.Kind)
				}
				if sort == "validating" {
					return `"allowed":true`
				}
				return patch(`[{"op":"replace","path":"/spec/maxReplicas","value":7}]`)
			})
			var b *bench
			change := func(w *webhooks.Config) {
				w.Family = func(*registry.Kind) (all []*apiset.Resource) {
					for _, v := range []string{autoscalingv1.SchemeGroupVersion.Version, autoscalingv2.SchemeGroupVersion.Version} {
						k := b.catalog.Resource(autoscalingv1.SchemeGroupVersion.WithResource("horizontalpodautoscalers").GroupResource().WithVersion(v))
						if v == "v2" || !lost.Load() {
							all = append(all, &apiset.Resource{Kind: k, Coder: b.codec.Of(k)})
						}
					}
					return all
				}
			}
			if sort == "mutating" {
				b = startWith(t, change, mutating("h", h.at("/"), func(w *admissionv1.MutatingWebhook) { w.FailurePolicy, w.Rules = &ignore, rules }))
			} else {
				b = startWith(t, change, validating("h", h.at("/"), func(w *admissionv1.ValidatingWebhook) { w.FailurePolicy, w.Rules = &ignore, rules }))
			}
			k := b.catalog.Resource(autoscalingv1.SchemeGroupVersion.WithResource("horizontalpodautoscalers"))
			o := &autoscalingv1.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Name: "h", Namespace: "ns"}, Spec: autoscalingv1.HorizontalPodAutoscalerSpec{MaxReplicas: 3}}
			r := &admission.Request{Operation: admission.Create, Resource: k, Kind: k.GVK(), Namespace: "ns", Name: "h", Options: &metav1.CreateOptions{}, Object: o}
			err := b.chain.Validate(t.Context(), r)
			want, replicas := c.wrong, int32(3)
			if sort == "mutating" {
				if err = b.chain.Mutate(t.Context(), r); !want {
					replicas = 7
				}
			} else if c.later {
				want = false // nothing is brought back
			}
			if (err != nil) != want || want && !strings.HasPrefix(told(err), "500 ") || len(h.questions()) != c.asked || o.Spec.MaxReplicas != replicas {
				t.Errorf("%s, %s: %v, asked %d times, %d replicas", name, sort, err, len(h.questions()), o.Spec.MaxReplicas)
			}
		}
	}
}
