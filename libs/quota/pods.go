package quota

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/component-helpers/resource"

	"binnacle/libs/podqos"
)

const requestsPrefix = corev1.DefaultResourceRequestsPrefix

func podCount() corev1.ResourceName { return countName(schema.GroupResource{Resource: "pods"}) }

// podEvaluator counts pods and their resources.
func podEvaluator(gates Gates, now func() time.Time) *Evaluator {
	return &Evaluator{
		MatchesResource: appliesToPods,
		Usage: func(obj runtime.Object) (Amounts, error) {
			pod, err := podOf(obj)
			if err != nil {
				return nil, err
			}
			used := Amounts{podCount(): OneQuantity()}
			if hasEnded(pod, now()) {
				return used, nil
			}
			options := resource.PodResourcesOptions{UseStatusResources: gates.InPlaceResize, SkipPodLevelResources: !gates.PodLevel}
			return Plus(used, ComputeResourceNames(resource.PodRequests(pod, options), resource.PodLimits(pod, options))), nil
		},
		InScope: podInScope,
	}
}

func podOf(obj runtime.Object) (*corev1.Pod, error) {
	if p, ok := obj.(*corev1.Pod); ok {
		return p, nil
	}
	return nil, fmt.Errorf("got %T, want a Pod", obj)
}

// appliesToPods reports whether a name in a quota applies to pods.
func appliesToPods(name corev1.ResourceName) bool {
	switch name {
	case podCount(), corev1.ResourcePods,
		corev1.ResourceCPU, corev1.ResourceRequestsCPU, corev1.ResourceLimitsCPU,
		corev1.ResourceMemory, corev1.ResourceRequestsMemory, corev1.ResourceLimitsMemory,
		corev1.ResourceEphemeralStorage, corev1.ResourceRequestsEphemeralStorage, corev1.ResourceLimitsEphemeralStorage:
		return true
	}
	return strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) || strings.HasPrefix(string(name),
		corev1.ResourceRequestsHugePagesPrefix) ||
		!isNativeResource(name) && strings.HasPrefix(string(name), requestsPrefix)
}

// isNativeResource reports whether the name of a resource has no domain, or the domain
// kubernetes.io.
func isNativeResource(name corev1.ResourceName) bool {
	return !strings.Contains(string(name), "/") || strings.Contains(string(name), corev1.ResourceDefaultNamespacePrefix)
}

// isExtendedResource reports whether a resource is an extended resource, such as "example.com/gpu".
func isExtendedResource(name corev1.ResourceName) bool {
	return !isNativeResource(name) && !strings.HasPrefix(string(name), requestsPrefix) &&
		len(validation.IsQualifiedName(requestsPrefix+string(name))) == 0
}

// ComputeResourceNames converts requests and limits to the names of quotas.
func ComputeResourceNames(requested, limits Amounts) Amounts {
	used := Amounts{corev1.ResourcePods: OneQuantity()}
	for name, quantity := range requested {
		switch {
		case name == corev1.ResourceCPU, name == corev1.ResourceMemory, name == corev1.ResourceEphemeralStorage,
			strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix):
			used[name], used[requestsPrefix+name] = quantity, quantity
		case isExtendedResource(name):
			used[requestsPrefix+name] = quantity
		}
	}
	for name, quantity := range limits {
		switch name {
		case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage:
			used["limits."+name] = quantity
		}
	}
	return used
}

// hasEnded reports whether a pod no longer runs, so that its resources do not count.
func hasEnded(pod *corev1.Pod, now time.Time) bool {
	if pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded {
		return true
	}
	d, grace := pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds
	return d != nil && grace != nil && now.Unix() > d.Unix()+*grace
}

// isBestEffort reports whether the quality of service class of a pod is BestEffort.
func isBestEffort(pod *corev1.Pod) bool {
	class := pod.Status.QOSClass
	if class == "" {
		class = podqos.Class(&pod.Spec)
	}
	return class == corev1.PodQOSBestEffort
}
