package podsecurity

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/pod-security-admission/api"

	"binnacle/libs/authorizer"
	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/request/requesttest"
)

// namespace is the only namespace, or the error of its lookup.
type namespace struct {
	pods
	labels  map[string]string
	err     error
	lookups int
}

func (n *namespace) GetNamespace(_ context.Context, name string) (*corev1.Namespace, error) {
	n.lookups++
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: n.labels}}, n.err
}

const config = "apiVersion: pod-security.admission.config.k8s.io/v1\nkind: PodSecurityConfiguration\n"

func host(is bool) *corev1.Pod { return &corev1.Pod{Spec: corev1.PodSpec{HostNetwork: is}} }

// image sets the image of the only container.
func image(p *corev1.Pod, name string) *corev1.Pod {
	p.Spec.Containers = []corev1.Container{{Name: "c", Image: name}}
	return p
}

func status(err error) string {
	if err == nil {
		return ""
	}
	st, ok := err.(apierrors.APIStatus)
	if !ok {
		return err.Error()
	}
	s := st.Status()
	return fmt.Sprintf("%d %s %s, %v", s.Code, s.Reason, s.Message, s.Details != nil)
}

// TestViolationsAreRejectedOrReported checks that a violation of the enforced standard is rejected.
// Violations of the other standards cause warnings and annotations.
func TestViolationsAreRejectedOrReported(t *testing.T) {
	const rejected = `403 Forbidden pods "x" is forbidden: violates PodSecurity "baseline:latest": host namespaces (hostNetwork=true), true`
	baseline := map[string]string{api.EnforceLevelLabel: "baseline"}
	strict := map[string]string{api.EnforceLevelLabel: "baseline", api.WarnLevelLabel: "baseline", api.AuditLevelLabel: "baseline"}
	template := &appsv1.Deployment{Spec: appsv1.DeploymentSpec{Template: corev1.PodTemplateSpec{Spec: host(true).Spec}}}
	for name, c := range map[string]struct {
		labels   map[string]string
		broken   error
		config   string
		op       admission.Operation
		resource string
		sub      string
		o, old   runtime.Object
		user     *authorizer.User
		want     string
		lookups  int
		messages int // warnings and annotations
	}{
		"compliant pod":        {labels: baseline, o: host(false), lookups: 1, messages: 1},
		"violating pod":        {labels: baseline, o: host(true), lookups: 1, messages: 1, want: rejected},
		"privileged namespace": {o: host(true), lookups: 1, messages: 1},
		"update of a violating pod": {
			labels: baseline, op: admission.Update, o: image(host(true), "b"), old: image(host(true), "a"),
			lookups: 1, messages: 1, want: rejected,
		},
		"deleted":    {labels: baseline, op: admission.Delete, old: host(true)},
		"its status": {labels: baseline, op: admission.Update, sub: "status", o: host(true), old: host(false)},
		"lookup fails": {
			labels: baseline, broken: errors.New("no answer"), o: host(false), lookups: 1,
			want: `500 InternalError Internal error occurred: failed to lookup namespace "ns", true`,
		},
		"template with violations": {labels: strict, resource: "deployments", o: template, lookups: 1, messages: 2},
		"resource without pods":    {labels: strict, resource: "configmaps", o: &corev1.ConfigMap{}},
		"exempt user": {
			labels: baseline, config: config + "exemptions: {usernames: [ada]}",
			user: &authorizer.User{Name: "ada"}, o: host(true), messages: 1,
		},
		"another user": {
			labels: baseline, config: config + "exemptions: {usernames: [ada]}",
			user: &authorizer.User{Name: "bob"}, o: host(true), lookups: 1, messages: 1, want: rejected,
		},
		"default of the configuration": {config: config + "defaults: {enforce: baseline}", o: host(true), lookups: 1, messages: 1, want: rejected},
	} {
		n := &namespace{labels: c.labels, err: c.broken}
		p, err := New([]byte(c.config), n, NewMetrics(prometheus.NewRegistry()))
		if err == nil {
			err = p.ValidateInitialization()
		}
		if err != nil {
			t.Fatal(err)
		}
		kind := &registry.Kind{Names: registry.Names{Version: "v1", Resource: "pods", Kind: "Pod", Namespaced: true}}
		switch c.resource {
		case "deployments":
			kind.Names = registry.Names{Group: "apps", Version: "v1", Resource: "deployments", Kind: "Deployment", Namespaced: true}
		case "configmaps":
			kind.Names = registry.Names{Version: "v1", Resource: "configmaps", Kind: "ConfigMap", Namespaced: true}
		}
		if c.op == "" {
			c.op = admission.Create
		}
		r := &admission.Request{
			Operation: c.op, Resource: kind, Subresource: c.sub, Kind: kind.GVK(), Namespace: "ns", Name: "x",
			Object: c.o, OldObject: c.old, User: c.user,
		}
		ctx, warnings := requesttest.WithWarnings(t.Context())
		got := status(p.Validate(ctx, r))
		if !strings.HasPrefix(got, strings.TrimSuffix(c.want, ", true")) || c.want == "" && got != "" ||
			c.want != "" && !strings.HasSuffix(got, ", true") {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
		if n.lookups != c.lookups {
			t.Errorf("%s: got %d lookups of the namespace, want %d", name, n.lookups, c.lookups)
		}
		messages := len(warnings.Headers()) + len(r.Annotations())
		if messages < min(c.messages, 1) || c.messages == 0 && c.broken == nil && messages > 0 {
			t.Errorf("%s: got warnings %q, annotations %v, want %d messages", name, warnings.Headers(), r.Annotations(), c.messages)
		}
		if c.messages == 2 && len(warnings.Headers()) == 0 {
			t.Errorf("%s: no warning, want one beside the annotations %v", name, r.Annotations())
		}
	}
}

// TestInvalidConfigurations checks that an invalid configuration is rejected.
func TestInvalidConfigurations(t *testing.T) {
	for _, text := range []string{"kind: Pod", config + "bogus: 1", config + "defaults: {enforce: odd}", config + "exemptions: {namespaces: [\"\"]}"} {
		p, err := New([]byte(text), &pods{}, NewMetrics(prometheus.NewRegistry()))
		if err == nil {
			err = p.ValidateInitialization()
		}
		if err == nil {
			t.Errorf("%s: error = nil, want one", text)
		}
	}
}

// TestPodsCannotBeListed checks that a warning says that the pods were not checked.
func TestPodsCannotBeListed(t *testing.T) {
	for name, p := range map[string]*pods{
		"listed":   {unlisted: errors.New("no answer")},
		"outlined": {unseen: errors.New("damaged")},
	} {
		p.add(true)
		got, err := relabel(t.Context(), t, p, "privileged", "baseline", allowAnyCost)
		if err != nil || len(got) != 1 || !strings.Contains(got[0], "failed to list pods") {
			t.Errorf("%s: got %q, %v; want one warning: failed to list pods", name, got, err)
		}
	}
}

// TestUncheckedWorkIsFree checks that neither small pods nor an unchanged standard are charged.
func TestUncheckedWorkIsFree(t *testing.T) {
	never := func(int) bool { return false }
	small := &pods{size: 10}
	small.add(false)
	if _, err := relabel(t.Context(), t, small, "privileged", "baseline", never); err != nil || small.listed != 1 {
		t.Errorf("small: got %v, %d lists; want no error, 1", err, small.listed)
	}
	large := &pods{size: request.LargeBody}
	large.add(false)
	if _, err := relabel(t.Context(), t, large, "baseline", "baseline", never); err != nil || large.listed != 0 {
		t.Errorf("unchanged: got %v, %d lists; want no error, 0", err, large.listed)
	}
	p, err := New(nil, large, NewMetrics(prometheus.NewRegistry()))
	if err == nil {
		err = p.ValidateInitialization()
	}
	if err != nil {
		t.Fatal(err)
	}
	kind := &registry.Kind{Names: registry.Names{Version: "v1", Resource: "namespaces", Kind: "Namespace"}}
	labeled := func(version string) *corev1.Namespace {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name:   "n",
			Labels: map[string]string{api.EnforceLevelLabel: "baseline", api.EnforceVersionLabel: version},
		}}
	}
	for sub, weighed := range map[string]bool{"": true, "status": false} {
		ctx := requesttest.WithInfo(t.Context(), &requestinfo.Info{Verb: "patch"})
		request.FromContext(ctx).Work = &requesttest.Work{OnEstimate: never}
		err := p.Validate(ctx, &admission.Request{
			Operation:   admission.Update,
			Subresource: sub,
			Name:        "n",
			Resource:    kind,
			Kind:        schema.GroupVersionKind{Version: "v1", Kind: "Namespace"},
			Object:      labeled("v1.30"),
			OldObject:   labeled("v1.29"),
		})
		if apierrors.IsTooManyRequests(err) != weighed {
			t.Errorf("%q of another version: got %v, want %v", sub, err, weighed)
		}
	}
}

// TestEvaluationMetrics checks that versions above the newest known one share a label.
func TestEvaluationMetrics(t *testing.T) {
	registered := prometheus.NewRegistry()
	m := NewMetrics(registered)
	level := func(l api.Level, v api.Version) api.LevelVersion { return api.LevelVersion{Level: l, Version: v} }
	a := &api.AttributesRecord{Resource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}, Operation: "CREATE"}
	for _, p := range []api.LevelVersion{
		level(api.LevelPrivileged, api.MajorMinorVersion(1, 20)), level(api.LevelBaseline, api.LatestVersion()),
		level(api.LevelBaseline, api.MajorMinorVersion(1, 20)),
		level(api.LevelBaseline, api.MajorMinorVersion(1, newestVersion)),
		level(api.LevelBaseline, api.MajorMinorVersion(1, newestVersion+1)),
	} {
		m.recordEvaluation(allow, p, enforce, a)
	}
	families, err := registered.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range families[0].GetMetric() {
		if s.GetCounter().GetValue() == 0 {
			continue // exists from the start
		}
		for _, l := range s.GetLabel() {
			if l.GetName() == "policy_version" {
				got = append(got, l.GetValue())
			}
		}
	}
	if want := "[future latest v1.20 v1.33 latest]"; fmt.Sprint(got) != want {
		t.Errorf("got %v, want %s", got, want)
	}
}
