// Package limitranger gives containers the resources that a namespace's limit
// ranges have for those that name none, and refuses pods and volume claims beyond
// the ranges. Limit ranges are applied in the order of their creation.
package limitranger

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/registry"
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
	for _, lr := range ranges {
		complete(pod, lr)
	}
	return nil
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
