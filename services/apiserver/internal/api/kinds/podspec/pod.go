package podspec

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"binnacle/services/apiserver/internal/registry/declare"
)

// gracePeriod is the default in seconds.
const gracePeriod = 30

// Pod sets the defaults of a pod. In addition to those of a template, these are service links,
// requests that equal limits, and host ports.
func Pod(p *corev1.Pod) {
	declare.FillPtr(&p.Spec.EnableServiceLinks, true)
	requestLimits(p.Spec.InitContainers)
	requestLimits(p.Spec.Containers)
	if p.Spec.HostNetwork {
		hostPorts(p.Spec.InitContainers)
		hostPorts(p.Spec.Containers)
	}
	Spec(&p.Spec)
	// A negative period becomes 1 second. Templates keep a negative period.
	if *p.Spec.TerminationGracePeriodSeconds < 0 {
		p.Spec.TerminationGracePeriodSeconds = ptr.To(int64(1))
	}
	pairAddresses(&p.Status)
}

// Template sets the defaults of a workload's pod template.
func Template(t *corev1.PodTemplateSpec) { Spec(&t.Spec) }

// Spec sets the defaults that pods and templates share.
func Spec(s *corev1.PodSpec) {
	declare.Fill(&s.DNSPolicy, corev1.DNSClusterFirst)
	declare.Fill(&s.RestartPolicy, corev1.RestartPolicyAlways)
	declare.FillPtr(&s.SecurityContext, corev1.PodSecurityContext{})
	declare.FillPtr(&s.TerminationGracePeriodSeconds, gracePeriod)
	declare.Fill(&s.SchedulerName, corev1.DefaultSchedulerName)
	// ServiceAccountName takes precedence. The other field is its old name and always equal.
	declare.Fill(&s.ServiceAccountName, s.DeprecatedServiceAccount)
	s.DeprecatedServiceAccount = s.ServiceAccountName

	for i := range s.Volumes {
		fillVolume(&s.Volumes[i])
	}
	for i := range s.InitContainers {
		fillContainer(&s.InitContainers[i])
	}
	for i := range s.Containers {
		fillContainer(&s.Containers[i])
	}
	for i := range s.EphemeralContainers {
		fillContainer((*corev1.Container)(&s.EphemeralContainers[i].EphemeralContainerCommon))
	}
	Round(s.Overhead)
	if s.Resources != nil {
		Round(s.Resources.Limits)
		Round(s.Resources.Requests)
	}
}

// requestLimits sets missing requests to the limits.
func requestLimits(containers []corev1.Container) {
	for i := range containers {
		r := &containers[i].Resources
		for name, limit := range r.Limits {
			if _, ok := r.Requests[name]; ok {
				continue
			}
			if r.Requests == nil {
				r.Requests = corev1.ResourceList{}
			}
			r.Requests[name] = limit.DeepCopy()
		}
	}
}

// hostPorts sets missing host ports of a pod in the host's network to the container ports.
func hostPorts(containers []corev1.Container) {
	for i := range containers {
		for j := range containers[i].Ports {
			p := &containers[i].Ports[j]
			declare.Fill(&p.HostPort, p.ContainerPort)
		}
	}
}

// pairAddresses makes podIP equal to the first of podIPs. If they differ, podIP takes precedence,
// because its writer does not know the list.
func pairAddresses(s *corev1.PodStatus) {
	switch {
	case s.PodIP == "" && len(s.PodIPs) > 0:
		s.PodIP = s.PodIPs[0].IP
	case s.PodIP != "" && (len(s.PodIPs) == 0 || s.PodIPs[0].IP != s.PodIP):
		s.PodIPs = []corev1.PodIP{{IP: s.PodIP}}
	}
}
