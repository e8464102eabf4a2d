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

// Covers reports whether the toleration covering tolerates every taint that covered tolerates, for at
// least as long, which makes covered redundant.
func Covers(covering, covered *corev1.Toleration) bool {
	if semantic.Equal(covering, covered) {
		return true
	}
	anyKey := covering.Key == "" && covering.Operator == corev1.TolerationOpExists
	if covering.Key != covered.Key && !anyKey || covering.Effect != "" && covering.Effect != covered.Effect {
		return false
	}
	if covering.Effect == corev1.TaintEffectNoExecute && covering.TolerationSeconds != nil {
		if covered.TolerationSeconds == nil || *covered.TolerationSeconds > *covering.TolerationSeconds {
			return false
		}
	}
	if covering.Operator == corev1.TolerationOpExists {
		return true
	}
	return isEqualOperator(covering.Operator) && isEqualOperator(covered.Operator) && covering.Value == covered.Value
}

// isEqualOperator reports whether an operator compares values; an empty one means Equal.
func isEqualOperator(o corev1.TolerationOperator) bool {
	return o == "" || o == corev1.TolerationOpEqual
}
