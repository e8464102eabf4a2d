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

// Ranges shows the limit ranges of a namespace, the oldest first, one after the other, as there may be many
// that are large. They are shared: nobody may change them. It ends with what visit fails with, and with the
// request.
type Ranges interface {
	Each(ctx context.Context, namespace string, visit func(*corev1.LimitRange) error) error
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
	containers := len(pod.Spec.Containers) + len(pod.Spec.InitContainers)
	weight, added, told := 0, 0, 0
	var refused error
	err := p.Ranges.Each(ctx, r.Namespace, func(lr *corev1.LimitRange) error {
		d := defaultsOf(lr)
		weight += d.weight(containers)
		if refused = admission.Weigh(ctx, weight); refused != nil {
			return refused
		}
		if weight > mostTold { // else nothing becomes too much
			bytes, names := d.adds(pod)
			if names > 0 { // they are told instead of those before
				told = names
			}
			if added += bytes; added > mostAdded {
				return nil // others say what is told
			}
		}
		complete(pod, &d)
		return nil
	})
	switch {
	case refused != nil:
		return refused
	case err != nil:
		return unseen(ctx, r, err)
	case told > mostTold:
		return status.Invalid(r.Kind.GroupKind(), r.ObjectName(), field.ErrorList{
			field.TooLong(field.NewPath("metadata", "annotations"), "", validation.TotalAnnotationSizeLimitB),
		})
	case added > mostAdded:
		return apierrors.NewRequestEntityTooLargeError("limit ranges add more to the pod than can be stored")
	}
	return nil
}

// bounds is how many a pod, or a volume claim, is held against by a limit range.
func bounds(lr *corev1.LimitRange, pod *corev1.Pod) (n int) {
	for i := range lr.Spec.Limits {
		l := &lr.Spec.Limits[i]
		of := len(l.Min) + len(l.Max) + len(l.MaxLimitRequestRatio)
		if pod != nil && l.Type == corev1.LimitTypeContainer {
			of *= len(pod.Spec.Containers) + len(pod.Spec.InitContainers)
		}
		n += of
	}
	return n
}

// Validate refuses what is beyond the limits.
func (p *Plugin) Validate(ctx context.Context, r *admission.Request) error {
	if !limited(r) {
		return nil
	}
	pod, _ := r.Object.(*corev1.Pod)
	held := 0
	var refused error
	err := p.Ranges.Each(ctx, r.Namespace, func(lr *corev1.LimitRange) error {
		held += bounds(lr, pod)
		if refused = admission.Weigh(ctx, request.PerValue*held); refused != nil {
			return refused
		}
		var errs []error
		switch o := r.Object.(type) {
		case *corev1.Pod:
			errs = p.checkPod(o, lr)
		case *corev1.PersistentVolumeClaim:
			errs = checkClaim(o, lr)
		}
		if err := status.Aggregated(errs); err != nil {
			refused = r.Forbidden(err)
		}
		return refused
	})
	if refused != nil {
		return refused
	}
	return unseen(ctx, r, err)
}

// unseen is what comes of ranges that could not be seen: a refusal, unless there was no time to look at them.
func unseen(ctx context.Context, r *admission.Request, err error) error {
	if err == nil || ctx.Err() != nil || apierrors.IsTooManyRequests(err) {
		return err
	}
	return r.Forbidden(err)
}
