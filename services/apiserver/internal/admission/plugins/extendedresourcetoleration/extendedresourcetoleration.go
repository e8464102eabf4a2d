// Package extendedresourcetoleration lets pods that request an extended resource run on the nodes
// that are dedicated to it.
package extendedresourcetoleration

import (
	"context"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"binnacle/libs/semantic"
	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/api/kinds/podspec"
)

// Name is the name of the plugin in flags and configuration.
const Name = "ExtendedResourceToleration"

// Plugin implements admission.Mutator.
type Plugin struct{}

// Admit adds a toleration for each extended resource, sorted by name.
func (Plugin) Admit(_ context.Context, r *admission.Request) error {
	pod, ok := r.Object.(*corev1.Pod)
	if !ok || !r.IsObject("", "pods") || r.Operation != admission.Create && r.Operation != admission.Update {
		return nil
	}
	requested := map[corev1.ResourceName]bool{}
	for _, containers := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range containers {
			for name := range containers[i].Resources.Requests {
				if podspec.Extended(name) {
					requested[name] = true
				}
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(requested)) {
		tolerate(pod, corev1.Toleration{Key: string(name), Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule})
	}
	return nil
}

// tolerate adds a toleration to a pod. Existing tolerations that differ only in tolerationSeconds
// are replaced instead.
func tolerate(pod *corev1.Pod, toleration corev1.Toleration) {
	found := false
	for i := range pod.Spec.Tolerations {
		if existing := &pod.Spec.Tolerations[i]; toleration.MatchToleration(existing) {
			if semantic.Equal(*existing, toleration) {
				return
			}
			*existing, found = toleration, true
		}
	}
	if !found {
		pod.Spec.Tolerations = append(pod.Spec.Tolerations, toleration)
	}
}
