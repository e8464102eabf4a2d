// Package limitranger gives containers the resources that a namespace's limit
// ranges have for those that name none, and refuses pods and volume claims beyond
// the ranges. Limit ranges are applied in the order of their creation.
package limitranger

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/status"
)

// Name of the plugin in flags and configuration.
const Name = "LimitRanger"

// annotation tells on a pod what it was given.
const annotation = "kubernetes.io/limit-ranger"

// Ranges looks up the limit ranges of a namespace, the oldest first.
type Ranges interface {
	In(ctx context.Context, namespace string) ([]*corev1.LimitRange, error)
}

// Plugin implements admission.Mutator and admission.Validator.
type Plugin struct {
	Ranges Ranges
	// PodLevel lets resources of whole pods count (feature gate
	// PodLevelResources).
	PodLevel bool
}

// limited tells whether limits apply: to new pods, to changes of what running
// ones may use, and to volume claims, but not to what is about to go.
func limited(r *admission.Request) bool {
	if o, ok := r.OldObject.(registry.Object); ok && o.GetDeletionTimestamp() != nil {
		return false
	}
	write := r.Operation == admission.Create || r.Operation == admission.Update
	switch {
	case r.Is("", "pods"):
		return r.Operation == admission.Create && r.Subresource == "" || r.Operation == admission.Update && r.Subresource == "resize"
	default:
		return write && r.IsObject("", "persistentvolumeclaims")
	}
}

// Admit fills in defaults.
func (p *Plugin) Admit(ctx context.Context, r *admission.Request) error {
	pod, ok := r.Object.(*corev1.Pod)
	if !ok || !limited(r) {
		return nil
	}
	ranges, err := p.Ranges.In(ctx, r.Namespace)
	if err != nil {
		return r.Forbidden(err)
	}
	containers, weight := len(pod.Spec.Containers)+len(pod.Spec.InitContainers), 0
	all := make([]defaults, len(ranges))
	for i, lr := range ranges {
		all[i] = defaultsOf(lr)
		weight += all[i].weight(containers)
	}
	if err := admission.Weigh(ctx, weight); err != nil {
		return err
	}
	added := 0
	for i := range all {
		if weight > mostTold { // else nothing becomes too much
			bytes, told := all[i].adds(pod)
			if i == len(all)-1 && told > mostTold { // others are told instead of those before
				return status.Invalid(r.Kind.GroupKind(), r.ObjectName(), field.ErrorList{
					field.TooLong(field.NewPath("metadata", "annotations"), "", validation.TotalAnnotationSizeLimitB),
				})
			}
			if added += bytes; added > mostAdded {
				return apierrors.NewRequestEntityTooLargeError("limit ranges add more to the pod than can be stored")
			}
		}
		complete(pod, &all[i])
	}
	return nil
}

// bounds is how many a pod, or a volume claim, is held against.
func bounds(ranges []*corev1.LimitRange, pod *corev1.Pod) (n int) {
	for _, lr := range ranges {
		for i := range lr.Spec.Limits {
			l := &lr.Spec.Limits[i]
			of := len(l.Min) + len(l.Max) + len(l.MaxLimitRequestRatio)
			if pod != nil && l.Type == corev1.LimitTypeContainer {
				of *= len(pod.Spec.Containers) + len(pod.Spec.InitContainers)
			}
			n += of
		}
	}
	return n
}

// Validate refuses what is beyond the limits.
func (p *Plugin) Validate(ctx context.Context, r *admission.Request) error {
	if !limited(r) {
		return nil
	}
	ranges, err := p.Ranges.In(ctx, r.Namespace)
	if err != nil {
		return r.Forbidden(err)
	}
	pod, _ := r.Object.(*corev1.Pod)
	if err := admission.Weigh(ctx, request.PerValue*bounds(ranges, pod)); err != nil {
		return err
	}
	for _, lr := range ranges {
		var errs []error
		switch o := r.Object.(type) {
		case *corev1.Pod:
			errs = p.checkPod(o, lr)
		case *corev1.PersistentVolumeClaim:
			errs = checkClaim(o, lr)
		}
		if err := status.Aggregated(errs); err != nil {
			return r.Forbidden(err)
		}
	}
	return nil
}
