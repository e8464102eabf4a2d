package resourcequota

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/component-helpers/resource"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/api/kinds/podspec"
)

const requests = corev1.DefaultResourceRequestsPrefix

func podCount() corev1.ResourceName { return countName(schema.GroupResource{Resource: "pods"}) }

// podEvaluator counts pods and their resources. now returns seconds since the epoch.
func podEvaluator(g Gates, now func() int64) *evaluator {
	return &evaluator{
		handles: handlesPod,
		counts:  countsOfPods,
		usage: func(obj runtime.Object) (amounts, error) {
			pod, err := podOf(obj)
			if err != nil {
				return nil, err
			}
			used := amounts{podCount(): one()}
			if ended(pod, now()) {
				return used, nil
			}
			o := resource.PodResourcesOptions{UseStatusResources: g.InPlaceResize, SkipPodLevelResources: !g.PodLevel}
			return plus(used, compute(resource.PodRequests(pod, o), resource.PodLimits(pod, o))), nil
		},
		inScope: podInScope, covers: true,
		constraints: func(required names, obj runtime.Object) error {
			pod, err := podOf(obj)
			if err != nil || g.PodLevel && resource.IsPodLevelResourcesSet(pod) {
				return err
			}
			return specified(required, pod)
		},
	}
}

// handlesPod reports whether an operation may change the usage of a pod. An update of the pod
// itself does so only if the pod moves between the scopes Terminating and NotTerminating.
func handlesPod(r *admission.Request) bool {
	switch r.Subresource {
	case "":
		return r.Operation == admission.Create || r.Operation == admission.Update && movesPod(r)
	case "resize":
		return r.Operation == admission.Update
	}
	return false
}

func movesPod(r *admission.Request) bool {
	pod, err := podOf(r.Object)
	if err != nil {
		return false
	}
	old, err := podOf(r.OldObject)
	return err == nil && terminating(old) != terminating(pod)
}

func podOf(obj runtime.Object) (*corev1.Pod, error) {
	if p, ok := obj.(*corev1.Pod); ok {
		return p, nil
	}
	return nil, fmt.Errorf("a pod is a %T", obj)
}

// countsOfPods reports whether a name in a quota applies to pods.
func countsOfPods(name corev1.ResourceName) bool {
	switch name {
	case podCount(), corev1.ResourcePods,
		corev1.ResourceCPU, corev1.ResourceRequestsCPU, corev1.ResourceLimitsCPU,
		corev1.ResourceMemory, corev1.ResourceRequestsMemory, corev1.ResourceLimitsMemory,
		corev1.ResourceEphemeralStorage, corev1.ResourceRequestsEphemeralStorage, corev1.ResourceLimitsEphemeralStorage:
		return true
	}
	return strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) || strings.HasPrefix(string(name), corev1.ResourceRequestsHugePagesPrefix) ||
		!native(name) && strings.HasPrefix(string(name), requests)
}

// native reports whether a resource has no domain, or that of Kubernetes.
func native(name corev1.ResourceName) bool {
	return !strings.Contains(string(name), "/") || strings.Contains(string(name), corev1.ResourceDefaultNamespacePrefix)
}

// extended reports whether a resource has another domain.
func extended(name corev1.ResourceName) bool {
	return !native(name) && !strings.HasPrefix(string(name), requests) && len(validation.IsQualifiedName(requests+string(name))) == 0
}

// compute converts requests and limits to the names of quotas.
func compute(asked, limits amounts) amounts {
	used := amounts{corev1.ResourcePods: one()}
	for name, q := range asked {
		switch {
		case name == corev1.ResourceCPU, name == corev1.ResourceMemory, name == corev1.ResourceEphemeralStorage,
			strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix):
			used[name], used[requests+name] = q, q
		case extended(name):
			used[requests+name] = q
		}
	}
	for name, q := range limits {
		switch name {
		case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage:
			used["limits."+name] = q
		}
	}
	return used
}

// specified rejects pods with containers that do not set the limited CPU and memory resources.
func specified(required names, pod *corev1.Pod) error {
	missing := map[corev1.ResourceName][]string{}
	for _, containers := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range containers {
			c := &containers[i]
			said := compute(c.Resources.Requests, c.Resources.Limits)
			for _, name := range required {
				if _, ok := said[name]; !ok && mustBeSaid(name) && !slices.Contains(missing[name], c.Name) {
					missing[name] = append(missing[name], c.Name)
				}
			}
		}
	}
	var parts []string
	for _, name := range required {
		if containers := missing[name]; containers != nil {
			slices.Sort(containers)
			parts = append(parts, string(name)+" for: "+strings.Join(containers, ","))
		}
	}
	if parts == nil {
		return nil
	}
	return fmt.Errorf("must specify %s", strings.Join(parts, "; "))
}

func mustBeSaid(name corev1.ResourceName) bool {
	switch name {
	case corev1.ResourceCPU, corev1.ResourceRequestsCPU, corev1.ResourceLimitsCPU,
		corev1.ResourceMemory, corev1.ResourceRequestsMemory, corev1.ResourceLimitsMemory:
		return true
	}
	return false
}

// ended reports whether a pod no longer runs, so that its resources do not count.
func ended(pod *corev1.Pod, now int64) bool {
	if pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded {
		return true
	}
	d, grace := pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds
	return d != nil && grace != nil && now > d.Unix()+*grace
}

func bestEffort(pod *corev1.Pod) bool {
	class := pod.Status.QOSClass
	if class == "" {
		class = podspec.QOSClass(&pod.Spec)
	}
	return class == corev1.PodQOSBestEffort
}
