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
	discoveryErr error // of some resources
	failures     []error
	// remaining holds the number of remaining objects, and finalizers those that have a finalizer.
	remaining  map[schema.GroupVersionResource]int
	finalizers map[string]int
}

// conditionOutcome is the reason and the message of a condition.
type conditionOutcome struct{ reason, message string }

// allConditions lists the conditions in their order, with the outcome of a condition that is false.
func allConditions() []struct {
	kind corev1.NamespaceConditionType
	good conditionOutcome
} {
	return []struct {
		kind corev1.NamespaceConditionType
		good conditionOutcome
	}{
		{corev1.NamespaceDeletionDiscoveryFailure, conditionOutcome{"ResourcesDiscovered", "All resources successfully discovered"}},
		{corev1.NamespaceDeletionGVParsingFailure, conditionOutcome{"ParsedGroupVersions", "All legacy kube types successfully parsed"}},
		{corev1.NamespaceDeletionContentFailure, conditionOutcome{"ContentDeleted", "All content successfully deleted, may be waiting on finalization"}},
		{corev1.NamespaceContentRemaining, conditionOutcome{"ContentRemoved", "All content successfully removed"}},
		{corev1.NamespaceFinalizersRemaining, conditionOutcome{"ContentHasNoFinalizers", "All content-preserving finalizers finished"}},
	}
}

// failedOutcomes returns the outcomes of the conditions that are true. Discovery returns parsed
// group versions, so the condition about parsing is never true.
func (p *progress) failedOutcomes() map[corev1.NamespaceConditionType]conditionOutcome {
	out := map[corev1.NamespaceConditionType]conditionOutcome{}
	if p.discoveryErr != nil {
		message := p.discoveryErr.Error()
		if stale := (*resources.StaleError)(nil); errors.As(p.discoveryErr, &stale) {
			message = fmt.Sprintf("Discovery failed for some groups, %d failing: %v", len(stale.Versions), p.discoveryErr)
		}
		out[corev1.NamespaceDeletionDiscoveryFailure] = conditionOutcome{"DiscoveryFailed", message}
	}
	if len(p.failures) > 0 {
		var messages []string
		for _, err := range p.failures {
			messages = append(messages, err.Error())
		}
		slices.Sort(messages)
		out[corev1.NamespaceDeletionContentFailure] = conditionOutcome{"ContentDeletionFailed",
			fmt.Sprintf("Failed to delete all resource types, %d remaining: %s", len(messages), strings.Join(messages, ", "))}
	}
	if len(p.remaining) > 0 {
		var parts []string
		for r, n := range p.remaining {
			parts = append(parts, fmt.Sprintf("%s.%s has %d resource instances", r.Resource, r.Group, n))
		}
		slices.Sort(parts)
		out[corev1.NamespaceContentRemaining] = conditionOutcome{"SomeResourcesRemain", "Some resources are remaining: " + strings.Join(parts, ", ")}
	}
	if len(p.finalizers) > 0 {
		var parts []string
		for _, f := range slices.Sorted(maps.Keys(p.finalizers)) {
			parts = append(parts, fmt.Sprintf("%s in %d resource instances", f, p.finalizers[f]))
		}
		out[corev1.NamespaceFinalizersRemaining] = conditionOutcome{"SomeFinalizersRemain",
			"Some content in the namespace has finalizers remaining: " + strings.Join(parts, ", ")}
	}
	return out
}

// setConditions sets the conditions of a namespace. It reports whether any has changed.
func (p *progress) setConditions(status *corev1.NamespaceStatus, now metav1.Time) (changed bool) {
	failed := p.failedOutcomes()
	for _, c := range allConditions() {
		next := corev1.NamespaceCondition{Type: c.kind, Status: corev1.ConditionFalse, LastTransitionTime: now, Reason: c.good.reason, Message: c.good.message}
		if o, ok := failed[c.kind]; ok {
			next.Status = corev1.ConditionTrue
			next.Reason = o.reason
			next.Message = o.message
		}
		i := slices.IndexFunc(status.Conditions, func(old corev1.NamespaceCondition) bool { return old.Type == c.kind })
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
