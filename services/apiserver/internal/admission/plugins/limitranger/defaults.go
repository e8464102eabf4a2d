package limitranger

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"

	"binnacle/services/apiserver/internal/request"
)

// defaults holds the resources of containers that set none.
type defaults struct{ requests, limits corev1.ResourceList }

// defaultsOf returns the default requests and limits of containers.
func defaultsOf(lr *corev1.LimitRange) defaults {
	d := defaults{corev1.ResourceList{}, corev1.ResourceList{}}
	for i := range lr.Spec.Limits {
		l := &lr.Spec.Limits[i]
		if l.Type != corev1.LimitTypeContainer {
			continue
		}
		for k, v := range l.DefaultRequest {
			d.requests[k] = v
		}
		for k, v := range l.Default {
			d.limits[k] = v
		}
	}
	return d
}

// size returns the maximum cost of the defaults for a number of containers.
func (d *defaults) size(containers int) int {
	size := 0
	for _, l := range []corev1.ResourceList{d.requests, d.limits} {
		for k := range l {
			size += max(request.PerValue, 2*len(k)) // the annotation contains the name too
		}
	}
	return containers * size
}

const (
	// maxAnnotation is the size in bytes above which the annotation is not built. It exceeds the
	// limit of annotations.
	maxAnnotation = 2 * validation.TotalAnnotationSizeLimitB
	// maxAdded is the corresponding limit of all added data. perAdded is the stored size of a
	// quantity without its name.
	maxAdded = request.MaxBody
	perAdded = 9
)

// growth returns the minimum number of bytes by which a pod grows, and how many of them are names.
// It stops counting above maxAdded.
func (d *defaults) growth(pod *corev1.Pod) (bytes, names int) {
	for _, containers := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range containers {
			r := &containers[i].Resources
			for _, l := range []struct{ to, from corev1.ResourceList }{{r.Requests, d.requests}, {r.Limits, d.limits}} {
				for k := range l.from {
					if _, ok := l.to[k]; !ok {
						bytes += len(k) + perAdded
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

// setDefaults sets missing resources of the containers of a pod, and lists them in an annotation.
func setDefaults(pod *corev1.Pod, d *defaults) {
	var names []string
	for _, group := range []struct {
		kind       string
		containers []corev1.Container
	}{{"container", pod.Spec.Containers}, {"init container", pod.Spec.InitContainers}} {
		for i := range group.containers {
			c := &group.containers[i]
			addNames := func(set []string, subject string) {
				if len(set) > 0 {
					names = append(names, fmt.Sprintf("%s %s for %s %s", strings.Join(set, ", "), subject, group.kind, c.Name))
				}
			}
			addNames(addMissing(&c.Resources.Requests, d.requests), "request")
			addNames(addMissing(&c.Resources.Limits, d.limits), "limit")
		}
	}
	if len(names) > 0 {
		if pod.Annotations == nil {
			pod.Annotations = map[string]string{}
		}
		pod.Annotations[annotation] = "LimitRanger plugin set: " + strings.Join(names, "; ")
	}
}

// addMissing adds missing resources and returns their names.
func addMissing(to *corev1.ResourceList, from corev1.ResourceList) (set []string) {
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
