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

// config is the beginning of every valid configuration.
const config = "apiVersion: pod-security.admission.config.k8s.io/v1\nkind: PodSecurityConfiguration\n"

// hostPod returns a pod that violates the standard baseline.
func hostPod() *corev1.Pod { return &corev1.Pod{Spec: corev1.PodSpec{HostNetwork: true}} }

// image sets the image of the only container.
func image(p *corev1.Pod, name string) *corev1.Pod {
	p.Spec.Containers = []corev1.Container{{Name: "c", Image: name}}
	return p
}

// statusText returns code, reason and message of an error, and whether it has details; "" for no
// error.
func statusText(err error) string {
	if err == nil {
		return ""
	}
	apiStatus, ok := err.(apierrors.APIStatus)
	if !ok {
		return err.Error()
	}
	s := apiStatus.Status()
	return fmt.Sprintf("%d %s %s, %v", s.Code, s.Reason, s.Message, s.Details != nil)
}

// messages describes the warnings and audit annotations that a request causes.
type messages int

const (
	noMessages        messages = iota // neither warnings nor annotations
	anyMessage                        // at least one warning or annotation
	atLeastOneWarning                 // at least one warning
)

// TestViolationsAreRejectedOrReported checks that a violation of the enforced standard is rejected.
// Violations of the other standards cause warnings and annotations.
func TestViolationsAreRejectedOrReported(t *testing.T) {
	const rejected = `403 Forbidden pods "x" is forbidden: violates PodSecurity "baseline:latest": host namespaces (hostNetwork=true), true`
	baseline := map[string]string{api.EnforceLevelLabel: "baseline"}
	strict := map[string]string{api.EnforceLevelLabel: "baseline", api.WarnLevelLabel: "baseline", api.AuditLevelLabel: "baseline"}
	template := &appsv1.Deployment{Spec: appsv1.DeploymentSpec{Template: corev1.PodTemplateSpec{Spec: hostPod().Spec}}}
	for name, test := range map[string]struct {
		labels       map[string]string // of the namespace
		lookupError  error
		config       string
		op           admission.Operation // default: create
		resource     string              // default: pods
		subresource  string
		obj, old     runtime.Object
		user         *authorizer.User
		want         string // error as statusText returns it, the message may be longer
		wantLookups  int
		wantMessages messages
	}{
		"compliant pod":        {labels: baseline, obj: &corev1.Pod{}, wantLookups: 1, wantMessages: anyMessage},
		"violating pod":        {labels: baseline, obj: hostPod(), wantLookups: 1, wantMessages: anyMessage, want: rejected},
		"privileged namespace": {obj: hostPod(), wantLookups: 1, wantMessages: anyMessage},
		"update of a violating pod": {
			labels: baseline, op: admission.Update, obj: image(hostPod(), "b"), old: image(hostPod(), "a"),
			wantLookups: 1, wantMessages: anyMessage, want: rejected,
		},
		"delete":          {labels: baseline, op: admission.Delete, old: hostPod()},
		"status of a pod": {labels: baseline, op: admission.Update, subresource: "status", obj: hostPod(), old: &corev1.Pod{}},
		"lookup fails": {
			labels: baseline, lookupError: errors.New("no answer"), obj: &corev1.Pod{}, wantLookups: 1,
			want: `500 InternalError Internal error occurred: failed to lookup namespace "ns", true`,
		},
		"template with violations": {labels: strict, resource: "deployments", obj: template, wantLookups: 1, wantMessages: atLeastOneWarning},
		"resource without pods":    {labels: strict, resource: "configmaps", obj: &corev1.ConfigMap{}},
		"exempt user": {
			labels: baseline, config: config + "exemptions: {usernames: [ada]}",
			user: &authorizer.User{Name: "ada"}, obj: hostPod(), wantMessages: anyMessage,
		},
		"user without an exemption": {
			labels: baseline, config: config + "exemptions: {usernames: [ada]}",
			user: &authorizer.User{Name: "bob"}, obj: hostPod(), wantLookups: 1, wantMessages: anyMessage, want: rejected,
		},
		"default of the configuration": {config: config + "defaults: {enforce: baseline}", obj: hostPod(), wantLookups: 1, wantMessages: anyMessage, want: rejected},
	} {
		labeled := &namespace{labels: test.labels, err: test.lookupError}
		plugin, err := New([]byte(test.config), labeled, NewMetrics(prometheus.NewRegistry()))
		if err == nil {
			err = plugin.ValidateInitialization()
		}
		if err != nil {
			t.Fatal(err)
		}
		kind := &registry.Kind{Names: registry.Names{Version: "v1", Resource: "pods", Kind: "Pod", Namespaced: true}}
		switch test.resource {
		case "deployments":
			kind.Names = registry.Names{Group: "apps", Version: "v1", Resource: "deployments", Kind: "Deployment", Namespaced: true}
		case "configmaps":
			kind.Names = registry.Names{Version: "v1", Resource: "configmaps", Kind: "ConfigMap", Namespaced: true}
		}
		if test.op == "" {
			test.op = admission.Create
		}
		req := &admission.Request{
			Operation: test.op, Resource: kind, Subresource: test.subresource, Kind: kind.GVK(), Namespace: "ns", Name: "x",
			Object: test.obj, OldObject: test.old, User: test.user,
		}
		ctx, warnings := requesttest.WithWarnings(t.Context())
		got := statusText(plugin.Validate(ctx, req))
		const hasDetails = ", true"
		wantPrefix := strings.TrimSuffix(test.want, hasDetails)
		if (got == "") != (test.want == "") || !strings.HasPrefix(got, wantPrefix) || got != "" && !strings.HasSuffix(got, hasDetails) {
			t.Errorf("%s: got error %q, want %q (empty: none)", name, got, test.want)
		}
		if labeled.lookups != test.wantLookups {
			t.Errorf("%s: got %d lookups of the namespace, want %d", name, labeled.lookups, test.wantLookups)
		}
		hasMessages := len(warnings.Headers())+len(req.Annotations()) > 0
		if want := test.wantMessages != noMessages; hasMessages != want && test.lookupError == nil {
			t.Errorf("%s: got warnings %q and annotations %v, want any: %t", name, warnings.Headers(), req.Annotations(), want)
		}
		if test.wantMessages == atLeastOneWarning && len(warnings.Headers()) == 0 {
			t.Errorf("%s: got no warning, want one beside the annotations %v", name, req.Annotations())
		}
	}
}

// TestInvalidConfigurationIsRejected checks that an invalid configuration is rejected.
func TestInvalidConfigurationIsRejected(t *testing.T) {
	for _, text := range []string{"kind: Pod", config + "bogus: 1", config + "defaults: {enforce: odd}", config + "exemptions: {namespaces: [\"\"]}"} {
		p, err := New([]byte(text), &pods{}, NewMetrics(prometheus.NewRegistry()))
		if err == nil {
			err = p.ValidateInitialization()
		}
		if err == nil {
			t.Errorf("configuration %q: got no error, want one", text)
		}
	}
}

// TestFailedListCausesWarning checks that a warning says that the pods were not checked.
func TestFailedListCausesWarning(t *testing.T) {
	for name, p := range map[string]*pods{
		"list fails":      {listError: errors.New("no answer")},
		"selection fails": {selectionError: errors.New("corrupt")},
	} {
		p.addPrivileged()
		got, err := relabel(t.Context(), t, p, "privileged", "baseline", allowAnyCost)
		if err != nil || len(got) != 1 || !strings.Contains(got[0], "failed to list pods") {
			t.Errorf("%s: got warnings %q and error %v, want one warning that contains \"failed to list pods\"", name, got, err)
		}
	}
}

// TestSmallPodsAndUnchangedStandardAreNotCharged checks that neither small pods nor an unchanged
// standard are charged.
func TestSmallPodsAndUnchangedStandardAreNotCharged(t *testing.T) {
	rejectAnyCost := func(int) bool { return false }
	small := &pods{size: 10}
	small.addRestricted()
	if _, err := relabel(t.Context(), t, small, "privileged", "baseline", rejectAnyCost); err != nil || small.listed != 1 {
		t.Errorf("small pods: got error %v and %d lists, want no error and 1", err, small.listed)
	}
	large := &pods{size: request.LargeBody}
	large.addRestricted()
	if _, err := relabel(t.Context(), t, large, "baseline", "baseline", rejectAnyCost); err != nil || large.listed != 0 {
		t.Errorf("unchanged standard: got error %v and %d lists, want no error and 0", err, large.listed)
	}
	plugin, err := New(nil, large, NewMetrics(prometheus.NewRegistry()))
	if err == nil {
		err = plugin.ValidateInitialization()
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
	for subresource, wantThrottled := range map[string]bool{"": true, "status": false} {
		ctx := requesttest.WithInfo(t.Context(), &requestinfo.Info{Verb: "patch"})
		request.FromContext(ctx).Work = &requesttest.Work{OnEstimate: rejectAnyCost}
		err := plugin.Validate(ctx, &admission.Request{
			Operation:   admission.Update,
			Subresource: subresource,
			Name:        "n",
			Resource:    kind,
			Kind:        schema.GroupVersionKind{Version: "v1", Kind: "Namespace"},
			Object:      labeled("v1.30"),
			OldObject:   labeled("v1.29"),
		})
		if apierrors.IsTooManyRequests(err) != wantThrottled {
			t.Errorf("changed version, subresource %q: got error %v, want TooManyRequests: %t", subresource, err, wantThrottled)
		}
	}
}

// TestVersionsAboveNewestShareMetricLabel checks that versions above the newest known one share a
// label.
func TestVersionsAboveNewestShareMetricLabel(t *testing.T) {
	registered := prometheus.NewRegistry()
	metrics := NewMetrics(registered)
	level := func(l api.Level, v api.Version) api.LevelVersion { return api.LevelVersion{Level: l, Version: v} }
	attributesRecord := &api.AttributesRecord{Resource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}, Operation: "CREATE"}
	for _, levelVersion := range []api.LevelVersion{
		level(api.LevelPrivileged, api.MajorMinorVersion(1, 20)), level(api.LevelBaseline, api.LatestVersion()),
		level(api.LevelBaseline, api.MajorMinorVersion(1, 20)),
		level(api.LevelBaseline, api.MajorMinorVersion(1, newestVersion)),
		level(api.LevelBaseline, api.MajorMinorVersion(1, newestVersion+1)),
	} {
		metrics.recordEvaluation(allow, levelVersion, enforce, attributesRecord)
	}
	families, err := registered.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, metric := range families[0].GetMetric() {
		if metric.GetCounter().GetValue() == 0 {
			continue // exists from the start
		}
		for _, l := range metric.GetLabel() {
			if l.GetName() == "policy_version" {
				got = append(got, l.GetValue())
			}
		}
	}
	if want := "[future latest v1.20 v1.33 latest]"; fmt.Sprint(got) != want {
		t.Errorf("got policy versions %v, want %s", got, want)
	}
}
