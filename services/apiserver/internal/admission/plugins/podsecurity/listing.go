package podsecurity

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	library "k8s.io/pod-security-admission/admission"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/request"
)

// Objects looks up namespaces and their pods.
type Objects interface {
	GetNamespace(ctx context.Context, name string) (*corev1.Namespace, error)
	// PodsIn returns the pods of a namespace, the oldest first.
	PodsIn(ctx context.Context, namespace string) ([]Stored, error)
}

// Stored is a pod that has not been decoded.
type Stored interface {
	// Size returns the stored size in bytes.
	Size() int
	// Outline returns the name, the owners and the runtime class, which the selection of pods
	// needs.
	Outline() (*corev1.Pod, error)
	// Judged returns the name, labels, annotations and spec.
	Judged() (*corev1.Pod, error)
}

// stricter reports whether an update changes the standard that is enforced on the pods of a
// namespace.
func stricter(r *admission.Request) bool {
	now, ok := r.Object.(*corev1.Namespace)
	if !ok || r.Operation != admission.Update || r.Subresource != "" {
		return false
	}
	was, ok := r.OldObject.(*corev1.Namespace)
	return ok && (now.Labels[api.EnforceLevelLabel] != was.Labels[api.EnforceLevelLabel] || now.Labels[api.EnforceVersionLabel] != was.Labels[api.EnforceVersionLabel])
}

// listing holds the pods of a namespace for one request. The library selects from all of them, but
// evaluates only some thousands within a second. So it receives outlines. Each pod is decoded when
// it is evaluated, and not retained.
type listing struct {
	objects Objects
	checks  policy.Evaluator
	pods    []Stored
	listed  bool
	// outlined maps the metadata of an outline to its pod.
	outlined map[*metav1.ObjectMeta]Stored
}

// begin acquires the limiter for large requests if the pods are large, before the library's time
// limit starts.
func (l *listing) begin(ctx context.Context, namespace string) error {
	pods, err := l.objects.PodsIn(ctx, namespace)
	if err != nil {
		return nil //nolint:nilerr // the library tells of it, if it wants them
	}
	l.pods, l.listed = pods, true
	size := 0
	for _, s := range pods {
		size += s.Size()
	}
	return request.Estimate(ctx, size)
}

// hold returns a copy of the library's configuration that uses the listing.
func (l *listing) hold(standards *library.Admission) *library.Admission {
	own := *standards
	l.checks = own.Evaluator
	own.Evaluator, own.PodLister = l, l
	return &own
}

// ListPods implements library.PodLister.
func (l *listing) ListPods(ctx context.Context, namespace string) ([]*corev1.Pod, error) {
	pods := l.pods
	if !l.listed {
		var err error
		if pods, err = l.objects.PodsIn(ctx, namespace); err != nil {
			return nil, err
		}
	}
	all := make([]*corev1.Pod, len(pods))
	l.outlined = make(map[*metav1.ObjectMeta]Stored, len(pods))
	for i, s := range pods {
		if err := ctx.Err(); err != nil { // the request has ended
			return nil, err
		}
		var err error
		if all[i], err = s.Outline(); err != nil {
			return nil, err
		}
		l.outlined[&all[i].ObjectMeta] = s
	}
	return all, nil
}

// EvaluatePod implements policy.Evaluator.
func (l *listing) EvaluatePod(standard api.LevelVersion, meta *metav1.ObjectMeta, spec *corev1.PodSpec) []policy.CheckResult {
	if s := l.outlined[meta]; s != nil {
		pod, err := s.Judged()
		if err != nil {
			return []policy.CheckResult{{ForbiddenReason: "it cannot be read", ForbiddenDetail: err.Error()}}
		}
		meta, spec = &pod.ObjectMeta, &pod.Spec
	}
	return l.checks.EvaluatePod(standard, meta, spec)
}
