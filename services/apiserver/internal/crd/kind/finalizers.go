package kind

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// standardFinalizers are the finalizers of Kubernetes itself, which have no domain.
var standardFinalizers = []string{
	metav1.FinalizerOrphanDependents,
	metav1.FinalizerDeleteDependents,
	string(corev1.FinalizerKubernetes),
}

// finalizerWarnings returns a warning for each finalizer without a path that a write adds.
func finalizerWarnings(current, old []string) (warnings []string) {
	for _, name := range slices.Compact(slices.Sorted(slices.Values(current))) {
		if strings.Contains(name, "/") || slices.Contains(standardFinalizers, name) || slices.Contains(old, name) {
			continue
		}
		path := ""
		if strings.Contains(name, ".") {
			path = " including a path (/)"
		}
		warnings = append(
			warnings,
			fmt.Sprintf("metadata.finalizers: %q: prefer a domain-qualified finalizer name%s to avoid accidental conflicts with other finalizer writers",
				name, path),
		)
	}
	return warnings
}
