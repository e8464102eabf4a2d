// Package tolerations merges the tolerations of a pod with additional ones.
package tolerations

import (
	corev1 "k8s.io/api/core/v1"

	"binnacle/libs/semantic"
)

// Merge returns the tolerations of both lists in order, but omits tolerations that another one
// covers.
func Merge(first, second []corev1.Toleration) []corev1.Toleration {
	all := append(append([]corev1.Toleration{}, first...), second...)
	var merged []corev1.Toleration
	for i := range all {
		if !isRedundant(all, i) {
			merged = append(merged, all[i])
		}
	}
	return merged
}

// isRedundant reports whether another toleration covers the one at index i. If two tolerations
// cover each other, only the second one is redundant.
func isRedundant(all []corev1.Toleration, i int) bool {
	for j := range all {
		if j == i || !Covers(&all[j], &all[i]) {
			continue
		}
		if j < i || !Covers(&all[i], &all[j]) {
			return true
		}
	}
	return false
}

// Covers reports whether the toleration a tolerates every taint that b tolerates, for at least as
// long, which makes b redundant.
func Covers(a, b *corev1.Toleration) bool {
	if semantic.Equal(a, b) {
		return true
	}
	anyKey := a.Key == "" && a.Operator == corev1.TolerationOpExists
	if a.Key != b.Key && !anyKey || a.Effect != "" && a.Effect != b.Effect {
		return false
	}
	if a.Effect == corev1.TaintEffectNoExecute && a.TolerationSeconds != nil {
		if b.TolerationSeconds == nil || *b.TolerationSeconds > *a.TolerationSeconds {
			return false
		}
	}
	if a.Operator == corev1.TolerationOpExists {
		return true
	}
	return isEqualOperator(a.Operator) && isEqualOperator(b.Operator) && a.Value == b.Value
}

// isEqualOperator reports whether an operator compares values; an empty one means Equal.
func isEqualOperator(o corev1.TolerationOperator) bool {
	return o == "" || o == corev1.TolerationOpEqual
}
