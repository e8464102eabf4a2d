package quota

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
)

// podInScope reports whether a pod is in a scope. No pod is in an unknown scope.
func podInScope(requirement Requirement, obj runtime.Object) (bool, error) {
	pod, err := podOf(obj)
	if err != nil {
		return false, err
	}
	switch requirement.ScopeName {
	case corev1.ResourceQuotaScopeTerminating:
		return Terminating(pod), nil
	case corev1.ResourceQuotaScopeNotTerminating:
		return !Terminating(pod), nil
	case corev1.ResourceQuotaScopeBestEffort:
		return isBestEffort(pod), nil
	case corev1.ResourceQuotaScopeNotBestEffort:
		return !isBestEffort(pod), nil
	case corev1.ResourceQuotaScopePriorityClass:
		var class []string
		if c := pod.Spec.PriorityClassName; c != "" {
			class = []string{c}
		}
		return selectsAny(requirement, class)
	case corev1.ResourceQuotaScopeCrossNamespacePodAffinity:
		return isCrossNamespace(pod.Spec.Affinity), nil
	}
	return false, nil
}

// Terminating reports whether a pod has a deadline, which decides between two scopes.
func Terminating(pod *corev1.Pod) bool {
	return pod.Spec.ActiveDeadlineSeconds != nil && *pod.Spec.ActiveDeadlineSeconds >= 0
}

// selectsAny reports whether a requirement selects one of the values, or their absence.
func selectsAny(requirement Requirement, values []string) (bool, error) {
	if requirement.Operator == corev1.ScopeSelectorOpExists {
		return len(values) > 0, nil
	}
	op, ok := map[corev1.ScopeSelectorOperator]selection.Operator{
		corev1.ScopeSelectorOpIn:           selection.In,
		corev1.ScopeSelectorOpNotIn:        selection.NotIn,
		corev1.ScopeSelectorOpDoesNotExist: selection.DoesNotExist,
	}[requirement.Operator]
	if !ok {
		return false, fmt.Errorf("failed to parse and convert selector: %q is not a valid scope selector operator", requirement.Operator)
	}
	r, err := labels.NewRequirement(string(requirement.ScopeName), op, requirement.Values)
	if err != nil {
		return false, fmt.Errorf("failed to parse and convert selector: %w", err)
	}
	if len(values) == 0 {
		return r.Matches(labels.Set{}), nil
	}
	for _, v := range values {
		if r.Matches(labels.Set{string(requirement.ScopeName): v}) {
			return true, nil
		}
	}
	return false, nil
}

// isCrossNamespace reports whether an affinity refers to pods of other namespaces.
func isCrossNamespace(affinity *corev1.Affinity) bool {
	if affinity == nil {
		return false
	}
	var terms []corev1.PodAffinityTerm
	add := func(required []corev1.PodAffinityTerm, preferred []corev1.WeightedPodAffinityTerm) {
		terms = append(terms, required...)
		for _, w := range preferred {
			terms = append(terms, w.PodAffinityTerm)
		}
	}
	if p := affinity.PodAffinity; p != nil {
		add(p.RequiredDuringSchedulingIgnoredDuringExecution, p.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	if p := affinity.PodAntiAffinity; p != nil {
		add(p.RequiredDuringSchedulingIgnoredDuringExecution, p.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	return slices.ContainsFunc(terms, func(t corev1.PodAffinityTerm) bool {
		return len(t.Namespaces) > 0 || t.NamespaceSelector != nil
	})
}
