package node

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Size is how much a graph keeps.
func Size(g *Graph) int {
	return len(g.pods) + len(g.users) + len(g.volumes) + len(g.mounts) + len(g.owned)
}

// RefCount is how many objects a pod brings to its node, and whether another one
// brings the same.
func RefCount(p, other *corev1.Pod) (int, bool) {
	refs := podRefs(p)
	return len(refs), slices.Equal(refs, podRefs(other))
}
