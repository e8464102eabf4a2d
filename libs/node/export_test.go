package node

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Size returns the number of entries in a graph.
func Size(g *Graph) int {
	return len(g.pods) + len(g.referencesByNode) + len(g.volumes) + len(g.volumesBySecret) + len(g.nodeOfObject)
}

// RefCount returns the number of objects that a pod references, and whether another pod references
// the same.
func RefCount(pod, other *corev1.Pod) (int, bool) {
	refs := podRefs(pod)
	return len(refs), slices.Equal(refs, podRefs(other))
}
