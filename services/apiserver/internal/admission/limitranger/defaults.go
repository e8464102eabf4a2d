package limitranger

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// complete gives the containers of a pod what they lack, and says so on the pod.
func complete(pod *corev1.Pod, lr *corev1.LimitRange) {
	requests, limits := corev1.ResourceList{}, corev1.ResourceList{}
	for i := range lr.Spec.Limits {
		l := &lr.Spec.Limits[i]
		if l.Type != corev1.LimitTypeContainer {
			continue
		}
		for k, v := range l.DefaultRequest {
			requests[k] = v
		}
		for k, v := range l.Default {
			limits[k] = v
		}
	}
	var told []string
	for _, group := range []struct {
		what       string
		containers []corev1.Container
	}{{"container", pod.Spec.Containers}, {"init container", pod.Spec.InitContainers}} {
		for i := range group.containers {
			c := &group.containers[i]
			tell := func(set []string, what string) {
				if len(set) > 0 {
					told = append(told, fmt.Sprintf("%s %s for %s %s", strings.Join(set, ", "), what, group.what, c.Name))
				}
			}
			tell(fill(&c.Resources.Requests, requests), "request")
			tell(fill(&c.Resources.Limits, limits), "limit")
		}
	}
	if len(told) > 0 {
		if pod.Annotations == nil {
			pod.Annotations = map[string]string{}
		}
		pod.Annotations[annotation] = "LimitRanger plugin set: " + strings.Join(told, "; ")
	}
}

// fill adds what is missing and returns its names.
func fill(to *corev1.ResourceList, from corev1.ResourceList) (set []string) {
	for k, v := range from {
		if _, ok := (*to)[k]; ok {
			continue
		}
		if *to == nil {
			*to = corev1.ResourceList{}
		}
		(*to)[k] = v.DeepCopy()
		set = append(set, string(k))
	}
	slices.Sort(set)
	return set
}
