package podsecurity

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	library "k8s.io/pod-security-admission/admission"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/request"
)

// Objects looks up namespaces and the pods in them.
type Objects interface {
	GetNamespace(ctx context.Context, name string) (*corev1.Namespace, error)
	// PodsIn are those of a namespace, the oldest first.
	PodsIn(ctx context.Context, namespace string) ([]Stored, error)
}

// Stored is a pod that has not been decoded.
type Stored interface {
	// Size is how many bytes it has.
	Size() int
	// Outline has its name, its owners and its runtime class: by these it is chosen.
	Outline() (*corev1.Pod, error)
	// Judged has its name, labels, annotations and specification.
	Judged() (*corev1.Pod, error)
}

// stricter tells whether an update may hold the pods of a namespace against another standard.
func stricter(r *admission.Request) bool {
	now, ok := r.Object.(*corev1.Namespace)
	if !ok || r.Operation != admission.Update || r.Subresource != "" {
		return false
	}
	was, ok := r.OldObject.(*corev1.Namespace)
	return ok && (now.Labels[api.EnforceLevelLabel] != was.Labels[api.EnforceLevelLabel] || now.Labels[api.EnforceVersionLabel] != was.Labels[api.EnforceVersionLabel])
}

// listing is the pods of a namespace for one request. The library wants all of them to choose from, but
// looks at some thousands at most, for a second: so it has outlines, and each pod is decoded when it is
// judged, and not kept.
type listing struct {
	objects Objects
	checks  policy.Evaluator
	pods    []Stored
	listed  bool
	// outlined are the pods that the library was given, by what it gives back.
	outlined map[*metav1.ObjectMeta]Stored
}

// begin has what may be large work begin in the request's turn: before the library's time runs.
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
	if size >= request.LargeBody && !request.Weigh(ctx, min(size, request.MaxBody)) {
		return apierrors.NewTooManyRequests("The pods of the namespace are large, and others are worked on", 1)
	}
	return nil
}

// hold has the library judge the pods of the listing.
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
		if err := ctx.Err(); err != nil { // nobody waits for them any more
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
