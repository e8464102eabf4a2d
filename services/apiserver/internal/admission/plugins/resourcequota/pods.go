package resourcequota

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/component-helpers/resource"

	"binnacle/libs/quota"
	"binnacle/services/apiserver/internal/admission"
)

// handlesPod reports whether a request may change the usage of a pod. An update of the pod itself
// does so only if it moves the pod between the scopes Terminating and NotTerminating.
func handlesPod(req *admission.Request) bool {
	switch req.Subresource {
	case "":
		return req.Operation == admission.Create || req.Operation == admission.Update && changesTerminatingScope(req)
	case "resize":
		return req.Operation == admission.Update
	}
	return false
}

// changesTerminatingScope reports whether an update moves a pod between Terminating and
// NotTerminating.
func changesTerminatingScope(req *admission.Request) bool {
	pod, err := podOf(req.Object)
	if err != nil {
		return false
	}
	old, err := podOf(req.OldObject)
	return err == nil && quota.Terminating(old) != quota.Terminating(pod)
}

func podOf(obj runtime.Object) (*corev1.Pod, error) {
	if p, ok := obj.(*corev1.Pod); ok {
		return p, nil
	}
	return nil, fmt.Errorf("got %T, want a Pod", obj)
}

// podConstraints returns the function evaluator.constraints for pods. It requires that each
// container sets the limited resources, unless the pod sets resources as a whole.
func podConstraints(g quota.Gates) func(names, runtime.Object) error {
	return func(required names, obj runtime.Object) error {
		pod, err := podOf(obj)
		if err != nil || g.PodLevel && resource.IsPodLevelResourcesSet(pod) {
			return err
		}
		return checkContainers(required, pod)
	}
}

// checkContainers returns an error if a container of the pod does not set one of the required
// resources. Only CPU and memory are checked.
func checkContainers(required names, pod *corev1.Pod) error {
	missing := map[corev1.ResourceName][]string{}
	for _, containers := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range containers {
			container := &containers[i]
			specified := quota.ComputeResourceNames(container.Resources.Requests, container.Resources.Limits)
			for _, name := range required {
				if _, ok := specified[name]; !ok && mustBeSpecified(name) {
					missing[name] = append(missing[name], container.Name)
				}
			}
		}
	}
	var parts []string
	for _, name := range required {
		if containers := missing[name]; containers != nil {
			slices.Sort(containers)
			parts = append(parts, string(name)+" for: "+strings.Join(slices.Compact(containers), ","))
		}
	}
	if parts == nil {
		return nil
	}
	return fmt.Errorf("must specify %s", strings.Join(parts, "; "))
}

// mustBeSpecified reports whether each container must set a resource that a quota limits.
func mustBeSpecified(name corev1.ResourceName) bool {
	switch name {
	case corev1.ResourceCPU, corev1.ResourceRequestsCPU, corev1.ResourceLimitsCPU,
		corev1.ResourceMemory, corev1.ResourceRequestsMemory, corev1.ResourceLimitsMemory:
		return true
	}
	return false
}
