// Package extendedresourcetoleration lets pods that ask for a resource of another
// domain run on the nodes that are kept for those who do.
package extendedresourcetoleration

import (
	"context"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"binnacle/libs/semantic"
	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/registry/podspec"
)

// Name of the plugin in flags and configuration.
const Name = "ExtendedResourceToleration"

// Plugin implements admission.Mutator.
type Plugin struct{}

// Admit adds a toleration for each such resource, in the order of their names.
func (Plugin) Admit(_ context.Context, r *admission.Request) error {
	pod, ok := r.Object.(*corev1.Pod)
	if !ok || !r.IsObject("", "pods") || r.Operation != admission.Create && r.Operation != admission.Update {
		return nil
	}
	asked := map[corev1.ResourceName]bool{}
	for _, containers := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range containers {
			for name := range containers[i].Resources.Requests {
				if podspec.Extended(name) {
					asked[name] = true
				}
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(asked)) {
		tolerate(pod, corev1.Toleration{Key: string(name), Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule})
	}
	return nil
}

// tolerate adds a toleration, or puts it in the place of what differs from it in
// its seconds alone.
func tolerate(pod *corev1.Pod, t corev1.Toleration) {
	found := false
	for i := range pod.Spec.Tolerations {
		if have := &pod.Spec.Tolerations[i]; t.MatchToleration(have) {
			if semantic.Equal(*have, t) {
				return
			}
			*have, found = t, true
		}
	}
	if !found {
		pod.Spec.Tolerations = append(pod.Spec.Tolerations, t)
	}
}
