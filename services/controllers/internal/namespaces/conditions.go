package namespaces

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/controllers/internal/resources"
)

// progress is the result of one attempt to delete the content of a namespace.
type progress struct {
	// discoveryErr is set if the resources of some group versions could not be discovered.
	discoveryErr error
	// failures holds the errors of deleting objects.
	failures []error
	// remaining holds the number of objects that still exist, by resource.
	remaining map[schema.GroupVersionResource]int
	// finalizers holds the number of objects that have a finalizer, by finalizer.
	finalizers map[string]int
}

// explanation is the reason and the message of a condition.
type explanation struct{ reason, message string }

// falseCondition is a condition of a namespace with its explanation while it is false. All
// conditions of a deletion report a problem, so false means success.
type falseCondition struct {
	kind    corev1.NamespaceConditionType
	success explanation
}

// falseConditions returns all conditions of a namespace that is being deleted, in the order in
// which they are added to its status.
func falseConditions() []falseCondition {
	return []falseCondition{
		{
			kind:    corev1.NamespaceDeletionDiscoveryFailure,
			success: explanation{"ResourcesDiscovered", "All resources successfully discovered"},
		},
		{
			kind:    corev1.NamespaceDeletionGVParsingFailure,
			success: explanation{"ParsedGroupVersions", "All legacy kube types successfully parsed"},
		},
		{
			kind:    corev1.NamespaceDeletionContentFailure,
			success: explanation{"ContentDeleted", "All content successfully deleted, may be waiting on finalization"},
		},
		{
			kind:    corev1.NamespaceContentRemaining,
			success: explanation{"ContentRemoved", "All content successfully removed"},
		},
		{
			kind:    corev1.NamespaceFinalizersRemaining,
			success: explanation{"ContentHasNoFinalizers", "All content-preserving finalizers finished"},
		},
	}
}

// trueConditions returns the explanations of the conditions that are true, which report a problem.
// NamespaceDeletionGVParsingFailure is never true, because discovery returns parsed group versions.
func (p *progress) trueConditions() map[corev1.NamespaceConditionType]explanation {
	out := map[corev1.NamespaceConditionType]explanation{}
	if p.discoveryErr != nil {
		message := p.discoveryErr.Error()
		if stale := (*resources.StaleError)(nil); errors.As(p.discoveryErr, &stale) {
			message = fmt.Sprintf("Discovery failed for some groups, %d failing: %v", len(stale.Versions), p.discoveryErr)
		}
		out[corev1.NamespaceDeletionDiscoveryFailure] = explanation{"DiscoveryFailed", message}
	}
	if len(p.failures) > 0 {
		var messages []string
		for _, err := range p.failures {
			messages = append(messages, err.Error())
		}
		slices.Sort(messages)
		out[corev1.NamespaceDeletionContentFailure] = explanation{
			"ContentDeletionFailed",
			fmt.Sprintf("Failed to delete all resource types, %d remaining: %s", len(messages), strings.Join(messages, ", ")),
		}
	}
	if len(p.remaining) > 0 {
		var parts []string
		for r, n := range p.remaining {
			parts = append(parts, fmt.Sprintf("%s.%s has %d resource instances", r.Resource, r.Group, n))
		}
		slices.Sort(parts)
		out[corev1.NamespaceContentRemaining] = explanation{
			"SomeResourcesRemain",
			"Some resources are remaining: " + strings.Join(parts, ", "),
		}
	}
	if len(p.finalizers) > 0 {
		var parts []string
		for _, f := range slices.Sorted(maps.Keys(p.finalizers)) {
			parts = append(parts, fmt.Sprintf("%s in %d resource instances", f, p.finalizers[f]))
		}
		out[corev1.NamespaceFinalizersRemaining] = explanation{
			"SomeFinalizersRemain",
			"Some content in the namespace has finalizers remaining: " + strings.Join(parts, ", "),
		}
	}
	return out
}

// setConditions sets all conditions of a namespace that is being deleted. It reports whether any
// has changed.
func (p *progress) setConditions(status *corev1.NamespaceStatus, now metav1.Time) (changed bool) {
	problems := p.trueConditions()
	for _, failed := range falseConditions() {
		next := corev1.NamespaceCondition{
			Type:               failed.kind,
			Status:             corev1.ConditionFalse,
			LastTransitionTime: now,
			Reason:             failed.success.reason,
			Message:            failed.success.message,
		}
		if problem, ok := problems[failed.kind]; ok {
			next.Status = corev1.ConditionTrue
			next.Reason = problem.reason
			next.Message = problem.message
		}
		i := slices.IndexFunc(status.Conditions, func(old corev1.NamespaceCondition) bool { return old.Type == failed.kind })
		if i < 0 {
			status.Conditions = append(status.Conditions, next)
			changed = true
			continue
		}
		old := &status.Conditions[i]
		if old.Status == next.Status {
			next.LastTransitionTime = old.LastTransitionTime
		}
		changed = changed || old.Status != next.Status || old.Reason != next.Reason || old.Message != next.Message
		*old = next
	}
	return changed
}
