package podsecurity

import (
	"context"
	"fmt"
	"regexp"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/pod-security-admission/api"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/request/requesttest"
)

// pods is a namespace lister with the pods of one namespace. It counts how often the pods are
// listed and decoded.
type pods struct {
	size int // stored size of each pod in bytes
	all  []*corev1.Pod

	listed    int // calls of PodsIn
	selected  int // pods decoded for the selection of those to evaluate
	evaluated int // pods decoded completely
	onList    func()

	listError, selectionError, evaluationError error
}

func (p *pods) GetNamespace(context.Context, string) (*corev1.Namespace, error) {
	return &corev1.Namespace{}, nil
}

func (p *pods) PodsIn(context.Context, string) (out []Stored, err error) {
	p.listed++
	if p.onList != nil {
		p.onList()
	}
	if p.listError != nil {
		return nil, p.listError
	}
	for _, pod := range p.all {
		out = append(out, &stored{p, pod})
	}
	return out, nil
}

// stored is a pod in the store.
type stored struct {
	pods *pods
	pod  *corev1.Pod
}

func (s *stored) Size() int { return s.pods.size }

func (s *stored) PodForSelection() (*corev1.Pod, error) {
	s.pods.selected++
	if s.pods.selectionError != nil {
		return nil, s.pods.selectionError
	}
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: s.pod.Name, OwnerReferences: s.pod.OwnerReferences}}, nil
}

func (s *stored) PodForEvaluation() (*corev1.Pod, error) {
	s.pods.evaluated++
	return s.pod, s.pods.evaluationError
}

// addRestricted adds a pod that the standard baseline allows.
func (p *pods) addRestricted() { p.add(corev1.PodSpec{}) }

// addPrivileged adds a pod that violates the standard baseline.
func (p *pods) addPrivileged() { p.add(corev1.PodSpec{HostNetwork: true}) }

func (p *pods) add(spec corev1.PodSpec) {
	p.all = append(p.all, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("p%04d", len(p.all))}, Spec: spec})
}

// relabel changes the standard of the namespace and returns the warnings. permit is the limiter for
// large requests.
func relabel(ctx context.Context, t *testing.T, p *pods, from, to string, permit func(cost int) bool) ([]string, error) {
	t.Helper()
	plugin, err := New(nil, p, NewMetrics(prometheus.NewRegistry()))
	if err != nil {
		t.Fatal(err)
	}
	if err := plugin.ValidateInitialization(); err != nil {
		t.Fatal(err)
	}
	labeled := func(level string) *corev1.Namespace {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{api.EnforceLevelLabel: level}}}
	}
	ctx, warnings := requesttest.WithWarnings(requesttest.WithInfo(ctx, &requestinfo.Info{Verb: "patch"}))
	request.FromContext(ctx).Work = &requesttest.Work{OnEstimate: permit}
	err = plugin.Validate(ctx, &admission.Request{
		Operation: admission.Update,
		Name:      "n",
		Namespace: "n",
		Kind:      schema.GroupVersionKind{Version: "v1", Kind: "Namespace"},
		Resource:  &registry.Kind{Names: registry.Names{Version: "v1", Resource: "namespaces", Kind: "Namespace"}},
		Object:    labeled(to),
		OldObject: labeled(from),
	})
	return warnings.Headers(), err
}

// allowAnyCost is a limiter that permits all requests.
func allowAnyCost(int) bool { return true }

// TestOnlyStricterStandardCausesWarnings checks that only a stricter standard causes an evaluation
// of the pods, with a warning for each kind of violation.
func TestOnlyStricterStandardCausesWarnings(t *testing.T) {
	p := &pods{}
	p.addRestricted()
	p.addPrivileged()
	got, err := relabel(t.Context(), t, p, "privileged", "baseline", allowAnyCost)
	want := []string{
		`299 - "existing pods in namespace \"n\" violate the new PodSecurity enforce level \"baseline:latest\""`,
		`299 - "p0001: host namespaces"`,
	}
	if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("privileged to baseline: got warnings %q and error %v, want %q and no error", got, err, want)
	}
	if p.selected != 2 || p.evaluated != 2 {
		t.Errorf("privileged to baseline: got %d selected and %d evaluated pods, want 2 and 2", p.selected, p.evaluated)
	}
	for _, change := range [][2]string{{"baseline", "baseline"}, {"restricted", "baseline"}, {"baseline", "privileged"}} {
		p.selected, p.evaluated = 0, 0
		if got, err := relabel(t.Context(), t, p, change[0], change[1], allowAnyCost); err != nil || len(got) != 0 ||
			p.selected+p.evaluated != 0 {
			t.Errorf("%s to %s: got warnings %q, error %v, %d selected and %d evaluated pods, want none",
				change[0], change[1], got, err, p.selected, p.evaluated)
		}
	}
}

// TestOnlyFirstPodsOfLargeNamespaceAreEvaluated checks that only the evaluated pods are decoded,
// and a warning says that there are more.
func TestOnlyFirstPodsOfLargeNamespaceAreEvaluated(t *testing.T) {
	p := &pods{}
	for range 3100 {
		p.addRestricted()
	}
	got, err := relabel(t.Context(), t, p, "privileged", "baseline", allowAnyCost)
	if err != nil || len(got) != 1 ||
		!regexp.MustCompile(`checked against the first \d+ of 3100 existing pods`).MatchString(got[0]) {
		t.Errorf("3100 pods: got warnings %q and error %v, want one warning about the first of 3100 existing pods", got, err)
	}
	if p.evaluated == 0 || p.evaluated > 3000 {
		t.Errorf("3100 pods: got %d evaluated, want 1 to 3000", p.evaluated)
	}
}

// TestLargePodsAreChargedAndThrottled checks that the evaluation of large pods has a cost, and is
// throttled.
func TestLargePodsAreChargedAndThrottled(t *testing.T) {
	p := &pods{size: request.LargeBody / 2}
	p.addPrivileged()
	p.addPrivileged()
	cost := 0
	if _, err := relabel(t.Context(), t, p, "privileged", "baseline", func(n int) bool { cost = n; return true }); err != nil ||
		cost != request.LargeBody ||
		p.evaluated != 2 {
		t.Errorf("got error %v, cost %d and %d evaluated pods, want no error, cost %d and 2", err, cost, p.evaluated, request.LargeBody)
	}
	p.selected, p.evaluated = 0, 0
	_, err := relabel(t.Context(), t, p, "privileged", "baseline", func(int) bool { return false })
	if !apierrors.IsTooManyRequests(err) || p.selected != 0 {
		t.Errorf("throttled: got error %v and %d selected pods, want TooManyRequests and none", err, p.selected)
	}
}

// TestCanceledRequestsDecodeNoPods checks that nothing is decoded for a request that has ended.
func TestCanceledRequestsDecodeNoPods(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	p := &pods{onList: cancel}
	p.addPrivileged()
	if _, err := relabel(ctx, t, p, "privileged", "baseline", allowAnyCost); err != nil || p.selected+p.evaluated != 0 {
		t.Errorf("got error %v, %d selected and %d evaluated pods, want none", err, p.selected, p.evaluated)
	}
}

// TestCorruptPodCausesWarning checks that a corrupt pod causes a warning of its own.
func TestCorruptPodCausesWarning(t *testing.T) {
	p := &pods{evaluationError: context.DeadlineExceeded}
	p.addRestricted()
	got, err := relabel(t.Context(), t, p, "privileged", "baseline", allowAnyCost)
	if err != nil || len(got) != 2 || got[1] != `299 - "p0000: it cannot be read"` {
		t.Errorf("got warnings %q and error %v, want two, the second one `299 - \"p0000: it cannot be read\"`", got, err)
	}
}
