// Package limitranger applies the limit ranges of a namespace. It sets their default requests and
// limits on containers that lack them, and rejects pods and volume claims outside the ranges. Limit
// ranges apply in the order of their creation.
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

// Name is the name of the plugin in flags and configuration.
const Name = "LimitRanger"

// annotation is the pod annotation that lists the defaults that were set.
const annotation = "kubernetes.io/limit-ranger"

// Ranges gives access to the limit ranges of the cluster.
type Ranges interface {
	// Each calls visit for each limit range of a namespace, the oldest first. There may be many
	// large ones, so they are decoded one at a time. They are shared and must not be changed. Each
	// stops and returns an error when visit returns one or when the request ends.
	Each(ctx context.Context, namespace string, visit func(*corev1.LimitRange) error) error
}

// Plugin implements admission.Mutator and admission.Validator.
type Plugin struct {
	Ranges Ranges
	// PodLevel enables resources of whole pods (feature gate PodLevelResources).
	PodLevel bool
}

// limitsApply reports whether limit ranges apply to a request: to new pods, resizes of running
// pods, and writes of volume claims, but not to objects that are being deleted.
func limitsApply(req *admission.Request) bool {
	if o, ok := req.OldObject.(registry.Object); ok && o.GetDeletionTimestamp() != nil {
		return false
	}
	write := req.Operation == admission.Create || req.Operation == admission.Update
	switch {
	case req.IsResource("", "pods"):
		return req.Operation == admission.Create && req.Subresource == "" || req.Operation == admission.Update && req.Subresource == "resize"
	default:
		return write && req.IsObject("", "persistentvolumeclaims")
	}
}

// Admit sets the defaults of the limit ranges on the containers of a new pod. It rejects the pod if
// the defaults would make it too large.
func (p *Plugin) Admit(ctx context.Context, req *admission.Request) error {
	pod, ok := req.Object.(*corev1.Pod)
	if !ok || !limitsApply(req) {
		return nil
	}
	containers := len(pod.Spec.Containers) + len(pod.Spec.InitContainers)
	cost := 0
	added := 0
	annotationSize := 0
	var rejection error
	err := p.Ranges.Each(ctx, req.Namespace, func(limitRange *corev1.LimitRange) error {
		defaults := defaultsOf(limitRange)
		cost += defaults.maxCost(containers)
		rejection = request.Estimate(ctx, cost)
		if rejection != nil {
			return rejection
		}
		if cost > maxAnnotation { // with a lower cost, neither limit can be exceeded
			bytes, names := defaults.addedBytes(pod)
			if names > 0 { // the annotation is replaced, so only the last range counts
				annotationSize = names
			}
			added += bytes
			if added > maxAdded {
				return nil // the pod will be rejected; later ranges may find another reason
			}
		}
		setDefaults(pod, &defaults)
		return nil
	})
	switch {
	case rejection != nil:
		return rejection
	case err != nil:
		return rejectLookupError(ctx, req, err)
	case annotationSize > maxAnnotation:
		return status.Invalid(req.Kind.GroupKind(), req.ObjectName(), field.ErrorList{
			field.TooLong(field.NewPath("metadata", "annotations"), "", validation.TotalAnnotationSizeLimitB),
		})
	case added > maxAdded:
		return apierrors.NewRequestEntityTooLargeError("limit ranges add more to the pod than can be stored")
	}
	return nil
}

// countBounds returns the number of bounds of a limit range that apply to a pod or a volume claim.
func countBounds(limitRange *corev1.LimitRange, pod *corev1.Pod) (bounds int) {
	for i := range limitRange.Spec.Limits {
		item := &limitRange.Spec.Limits[i]
		count := len(item.Min) + len(item.Max) + len(item.MaxLimitRequestRatio)
		if pod != nil && item.Type == corev1.LimitTypeContainer {
			count *= len(pod.Spec.Containers) + len(pod.Spec.InitContainers)
		}
		bounds += count
	}
	return bounds
}

// Validate rejects pods and volume claims outside the limit ranges.
func (p *Plugin) Validate(ctx context.Context, req *admission.Request) error {
	if !limitsApply(req) {
		return nil
	}
	pod, _ := req.Object.(*corev1.Pod)
	bounds := 0
	var rejection error
	err := p.Ranges.Each(ctx, req.Namespace, func(limitRange *corev1.LimitRange) error {
		bounds += countBounds(limitRange, pod)
		rejection = request.Estimate(ctx, request.PerValue*bounds)
		if rejection != nil {
			return rejection
		}
		var errs []error
		switch o := req.Object.(type) {
		case *corev1.Pod:
			errs = p.checkPod(o, limitRange)
		case *corev1.PersistentVolumeClaim:
			errs = checkClaim(o, limitRange)
		}
		if err := status.Aggregated(errs); err != nil {
			rejection = req.Forbidden(err)
		}
		return rejection
	})
	if rejection != nil {
		return rejection
	}
	return rejectLookupError(ctx, req, err)
}

// rejectLookupError returns a Forbidden error if err is an error of reading the limit ranges. It
// returns nil, and errors of a request that has ended or is throttled, unchanged.
func rejectLookupError(ctx context.Context, req *admission.Request, err error) error {
	if err == nil || ctx.Err() != nil || apierrors.IsTooManyRequests(err) {
		return err
	}
	return req.Forbidden(err)
}
