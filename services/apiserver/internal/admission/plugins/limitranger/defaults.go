package limitranger

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"

	"binnacle/services/apiserver/internal/request"
)

// defaults holds the requests and limits for containers that do not set them.
type defaults struct{ requests, limits corev1.ResourceList }

// defaultsOf returns the container defaults of a limit range.
func defaultsOf(lr *corev1.LimitRange) defaults {
	out := defaults{requests: corev1.ResourceList{}, limits: corev1.ResourceList{}}
	for i := range lr.Spec.Limits {
		limit := &lr.Spec.Limits[i]
		if limit.Type != corev1.LimitTypeContainer {
			continue
		}
		for k, v := range limit.DefaultRequest {
			out.requests[k] = v
		}
		for k, v := range limit.Default {
			out.limits[k] = v
		}
	}
	return out
}

// maxCost returns the cost of setting all defaults in a number of containers, in the unit of
// request.Estimate.
func (d *defaults) maxCost(containers int) int {
	cost := 0
	for _, l := range []corev1.ResourceList{d.requests, d.limits} {
		for k := range l {
			cost += max(request.PerValue, 2*len(k)) // the annotation contains the name too
		}
	}
	return containers * cost
}

const (
	// maxAnnotation is the size in bytes above which the annotation is not built, because the pod
	// would be rejected anyway: it is twice the limit for all annotations of an object.
	maxAnnotation = 2 * validation.TotalAnnotationSizeLimitB
	// maxAdded is the number of bytes above which no more defaults are set, because the pod could
	// not be stored.
	maxAdded = request.MaxBody
	// quantitySize is the minimum stored size of a resource quantity in bytes, without its name.
	quantitySize = 9
)

// addedBytes returns a lower bound of the bytes that the defaults add to a pod, and how many of
// them are names of resources. It stops counting above maxAdded.
func (d *defaults) addedBytes(pod *corev1.Pod) (bytes, names int) {
	for _, containers := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range containers {
			r := &containers[i].Resources
			for _, l := range []struct{ to, from corev1.ResourceList }{{to: r.Requests, from: d.requests}, {to: r.Limits, from: d.limits}} {
				for k := range l.from {
					if _, ok := l.to[k]; !ok {
						bytes += len(k) + quantitySize
						names += len(k)
					}
				}
				if bytes > maxAdded {
					return bytes, names
				}
			}
		}
	}
	return bytes, names
}

// setDefaults sets the missing requests and limits of the containers of a pod, and lists them in an
// annotation, such as "LimitRanger plugin set: cpu, memory request for container web".
func setDefaults(pod *corev1.Pod, values *defaults) {
	var names []string
	for _, group := range []struct {
		kind       string
		containers []corev1.Container
	}{{kind: "container", containers: pod.Spec.Containers}, {kind: "init container", containers: pod.Spec.InitContainers}} {
		for i := range group.containers {
			container := &group.containers[i]
			addNames := func(set []string, subject string) {
				if len(set) > 0 {
					names = append(names, fmt.Sprintf("%s %s for %s %s", strings.Join(set, ", "), subject, group.kind, container.Name))
				}
			}
			addNames(addMissing(&container.Resources.Requests, values.requests), "request")
			addNames(addMissing(&container.Resources.Limits, values.limits), "limit")
		}
	}
	if len(names) > 0 {
		if pod.Annotations == nil {
			pod.Annotations = map[string]string{}
		}
		pod.Annotations[annotation] = "LimitRanger plugin set: " + strings.Join(names, "; ")
	}
}

// addMissing copies the resources that are missing in to from from, and returns their names,
// sorted.
func addMissing(to *corev1.ResourceList, from corev1.ResourceList) (set []string) {
	for resourceName, quantity := range from {
		if _, ok := (*to)[resourceName]; ok {
			continue
		}
		if *to == nil {
			*to = corev1.ResourceList{}
		}
		(*to)[resourceName] = quantity.DeepCopy()
		set = append(set, string(resourceName))
	}
	slices.Sort(set)
	return set
}
