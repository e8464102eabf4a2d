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

// pods are the pods of a namespace. They count how often they are decoded.
type pods struct {
	size                int // of each pod
	all                 []*corev1.Pod
	outlined, evaluated int
	listed              int
	whenListed          func()
	unreadable          error
	// unlisted is the error of listing the pods, unseen that of outlining them.
	unlisted, unseen error
}

func (p *pods) GetNamespace(context.Context, string) (*corev1.Namespace, error) {
	return &corev1.Namespace{}, nil
}

func (p *pods) PodsIn(context.Context, string) (out []Stored, err error) {
	p.listed++
	if p.whenListed != nil {
		p.whenListed()
	}
	if p.unlisted != nil {
		return nil, p.unlisted
	}
	for _, pod := range p.all {
		out = append(out, &stored{p, pod})
	}
	return out, nil
}

type stored struct {
	pods *pods
	pod  *corev1.Pod
}

func (s *stored) Size() int { return s.pods.size }

func (s *stored) PodForSelection() (*corev1.Pod, error) {
	s.pods.outlined++
	if s.pods.unseen != nil {
		return nil, s.pods.unseen
	}
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: s.pod.Name, OwnerReferences: s.pod.OwnerReferences}}, nil
}

func (s *stored) PodForEvaluation() (*corev1.Pod, error) {
	s.pods.evaluated++
	return s.pod, s.pods.unreadable
}

func (p *pods) add(privileged bool) {
	p.all = append(
		p.all,
		&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("p%04d", len(p.all))},
			Spec:       corev1.PodSpec{HostNetwork: privileged},
		},
	)
}

// relabel changes the standard of the namespace and returns the warnings.
func relabel(ctx context.Context, t *testing.T, p *pods, from, to string, weigh func(int) bool) ([]string, error) {
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
	request.FromContext(ctx).Work = &requesttest.Work{OnEstimate: weigh}
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

func allowAnyCost(int) bool { return true }

func TestStricterStandardWarns(t *testing.T) {
	p := &pods{}
	p.add(false)
	p.add(true)
	got, err := relabel(t.Context(), t, p, "privileged", "baseline", allowAnyCost)
	want := []string{
		`299 - "existing pods in namespace \"n\" violate the new PodSecurity enforce level \"baseline:latest\""`,
		`299 - "p0001: host namespaces"`,
	}
	if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got warnings %q, %v, want %q", got, err, want)
	}
	if p.outlined != 2 || p.evaluated != 2 {
		t.Errorf("got %d outlined, %d evaluated; want 2, 2", p.outlined, p.evaluated)
	}
	for _, change := range [][2]string{{"baseline", "baseline"}, {"restricted", "baseline"}, {"baseline", "privileged"}} {
		p.outlined, p.evaluated = 0, 0
		if got, err := relabel(t.Context(), t, p, change[0], change[1], allowAnyCost); err != nil || len(got) != 0 ||
			p.outlined+p.evaluated != 0 {
			t.Errorf("%s: got %q, %v, %d outlined, %d evaluated; want no error, length 0, 0", change, got, err, p.outlined, p.evaluated)
		}
	}
}

// TestManyPods checks that only the evaluated pods are decoded, and a warning says that there are
// more.
func TestManyPods(t *testing.T) {
	p := &pods{}
	for range 3100 {
		p.add(false)
	}
	got, err := relabel(t.Context(), t, p, "privileged", "baseline", allowAnyCost)
	if err != nil || len(got) != 1 ||
		!regexp.MustCompile(`checked against the first \d+ of 3100 existing pods`).MatchString(got[0]) {
		t.Errorf("got warnings %q, %v, want one about the first of 3100 existing pods", got, err)
	}
	if p.evaluated == 0 || p.evaluated > 3000 {
		t.Errorf("got %d evaluated; want other than 0, at most 3000", p.evaluated)
	}
}

// TestLargePods checks that the evaluation of large pods has a cost, and is throttled.
func TestLargePods(t *testing.T) {
	p := &pods{size: request.LargeBody / 2}
	p.add(true)
	p.add(true)
	weighed := 0
	if _, err := relabel(t.Context(), t, p, "privileged", "baseline", func(n int) bool { weighed = n; return true }); err != nil ||
		weighed != request.LargeBody ||
		p.evaluated != 2 {
		t.Errorf("got %v, cost %d, %d evaluated; want no error, %v, 2", err, weighed, p.evaluated, request.LargeBody)
	}
	p.outlined, p.evaluated = 0, 0
	_, err := relabel(t.Context(), t, p, "privileged", "baseline", func(int) bool { return false })
	if !apierrors.IsTooManyRequests(err) || p.outlined != 0 {
		t.Errorf("throttled: got %v, %d outlined; want an error of type TooManyRequests, 0", err, p.outlined)
	}
}

// TestCanceledRequestsDecodeNoPods checks that nothing is decoded for a request that has ended.
func TestCanceledRequestsDecodeNoPods(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	p := &pods{whenListed: cancel}
	p.add(true)
	if _, err := relabel(ctx, t, p, "privileged", "baseline", allowAnyCost); err != nil || p.outlined+p.evaluated != 0 {
		t.Errorf("got %v, %d outlined, %d evaluated; want no error, 0", err, p.outlined, p.evaluated)
	}
}

// TestCorruptPods checks that a pod that cannot be read causes a warning of its own.
func TestCorruptPods(t *testing.T) {
	p := &pods{unreadable: context.DeadlineExceeded}
	p.add(false)
	got, err := relabel(t.Context(), t, p, "privileged", "baseline", allowAnyCost)
	if err != nil || len(got) != 2 || got[1] != `299 - "p0000: it cannot be read"` {
		t.Errorf("got %q, %v; want no error, length 2, `299 - \"p0000: it cannot be read\"`", got, err)
	}
}
