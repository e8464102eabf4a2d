// Package podqos computes the quality of service class of pods. Validation, admission and quotas use
// it.
package podqos

import (
	corev1 "k8s.io/api/core/v1"
)

// Class returns the class of a pod: Guaranteed if the limits of every container for cpu and
// memory equal its requests, BestEffort if no container has either, otherwise Burstable.
func Class(s *corev1.PodSpec) corev1.PodQOSClass {
	hasResources, guaranteed := false, true
	for _, list := range [][]corev1.Container{s.InitContainers, s.Containers} {
		for i := range list {
			r := &list[i].Resources
			for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
				limit := r.Limits[name]
				request, ok := r.Requests[name]
				if !ok {
					// A limit without a request is also the request.
					request = limit
				}
				hasResources = hasResources || request.Sign() > 0 || limit.Sign() > 0
				guaranteed = guaranteed && limit.Sign() > 0 && request.Cmp(limit) == 0
			}
		}
	}
	switch {
	case !hasResources:
		return corev1.PodQOSBestEffort
	case guaranteed:
		return corev1.PodQOSGuaranteed
	default:
		return corev1.PodQOSBurstable
	}
}
