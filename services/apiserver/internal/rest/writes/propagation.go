package writes

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/apiserver/internal/registry"
)

// deletionFinalizers returns the finalizers that the object has after a DELETE: those of the garbage
// collector are added or removed as the propagation policy requires. It keeps the order if none is
// added or removed.
func (r *Request) deletionFinalizers(obj registry.Object, options *metav1.DeleteOptions) []string {
	existing := obj.GetFinalizers()
	desired := r.collectorFinalizer(obj, options)
	if r.Resource.Delete.TwoPhase && obj.GetDeletionTimestamp() == nil {
		desired = firstStepFinalizers(existing, options)
	}
	isUnwanted := func(f string) bool { return isCollectorFinalizer(f) && !slices.Contains(desired, f) }
	isMissing := func(f string) bool { return !slices.Contains(existing, f) }
	if !slices.ContainsFunc(existing, isUnwanted) && !slices.ContainsFunc(desired, isMissing) {
		return existing
	}
	return append(slices.DeleteFunc(slices.Clone(existing), isCollectorFinalizer), desired...)
}

// isCollectorFinalizer reports whether the garbage collector removes a finalizer after it has
// orphaned or deleted the dependents of an object.
func isCollectorFinalizer(f string) bool {
	return f == metav1.FinalizerOrphanDependents || f == metav1.FinalizerDeleteDependents
}

// collectorFinalizer returns the finalizer by which the garbage collector learns what to do with
// the dependents of an object, or none for a deletion in the background. The options take
// precedence. Without them, the first such finalizer of the object applies, then the default of its
// kind.
func (r *Request) collectorFinalizer(obj registry.Object, options *metav1.DeleteOptions) []string {
	if r.Resource.Delete.NoDependents {
		return nil
	}
	if orphan, foreground, set := propagationPolicy(options); set {
		switch {
		case orphan:
			return []string{metav1.FinalizerOrphanDependents}
		case foreground:
			return []string{metav1.FinalizerDeleteDependents}
		}
		return nil
	}
	if i := slices.IndexFunc(obj.GetFinalizers(), isCollectorFinalizer); i >= 0 {
		return obj.GetFinalizers()[i : i+1]
	}
	if r.Resource.Delete.Orphan {
		return []string{metav1.FinalizerOrphanDependents}
	}
	return nil
}

// firstStepFinalizers is collectorFinalizer for the first step of a deletion in two steps. As in
// Kubernetes, orphanDependents=false means foreground deletion in that step, and an object may have
// both finalizers.
func firstStepFinalizers(existing []string, options *metav1.DeleteOptions) (desired []string) {
	orphan, foreground, set := propagationPolicy(options)
	if !set {
		orphan = slices.Contains(existing, metav1.FinalizerOrphanDependents)
		foreground = slices.Contains(existing, metav1.FinalizerDeleteDependents)
	}
	if options.OrphanDependents != nil { //nolint:staticcheck // clients still send it
		foreground = !orphan
	}
	if orphan {
		desired = append(desired, metav1.FinalizerOrphanDependents)
	}
	if foreground {
		desired = append(desired, metav1.FinalizerDeleteDependents)
	}
	return desired
}

// propagationPolicy returns the propagation policy of the options. If neither orphan nor foreground
// is true, it is deletion in the background. set reports whether the options have a policy.
func propagationPolicy(options *metav1.DeleteOptions) (orphan, foreground, set bool) {
	switch {
	case options.OrphanDependents != nil: //nolint:staticcheck // clients still send it
		return *options.OrphanDependents, false, true //nolint:staticcheck // clients still send it
	case options.PropagationPolicy != nil:
		policy := *options.PropagationPolicy
		return policy == metav1.DeletePropagationOrphan, policy == metav1.DeletePropagationForeground, true
	}
	return false, false, false
}
