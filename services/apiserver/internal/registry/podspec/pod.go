package podspec

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"binnacle/services/apiserver/internal/registry/declare"
)

// gracePeriod in seconds.
const gracePeriod = 30

// Pod fills a pod. A pod gets more than a template does: links to services,
// requests that follow its limits, and the host's ports.
func Pod(p *corev1.Pod) {
	declare.FillPtr(&p.Spec.EnableServiceLinks, true)
	requestLimits(p.Spec.InitContainers)
	requestLimits(p.Spec.Containers)
	if p.Spec.HostNetwork {
		hostPorts(p.Spec.InitContainers)
		hostPorts(p.Spec.Containers)
	}
	Spec(&p.Spec)
	// A pod with a negative period is one with 1 second. Templates keep a negative period.
	if *p.Spec.TerminationGracePeriodSeconds < 0 {
		p.Spec.TerminationGracePeriodSeconds = ptr.To(int64(1))
	}
	pairAddresses(&p.Status)
}

// Template fills the template of the pods that a workload makes.
func Template(t *corev1.PodTemplateSpec) { Spec(&t.Spec) }

// Spec fills what pods and templates have in common.
func Spec(s *corev1.PodSpec) {
	declare.Fill(&s.DNSPolicy, corev1.DNSClusterFirst)
	declare.Fill(&s.RestartPolicy, corev1.RestartPolicyAlways)
	declare.FillPtr(&s.SecurityContext, corev1.PodSecurityContext{})
	declare.FillPtr(&s.TerminationGracePeriodSeconds, gracePeriod)
	declare.Fill(&s.SchedulerName, corev1.DefaultSchedulerName)
	// The name wins; the other field is its old name and always the same.
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

// requestLimits makes what a container limits without requesting its request.
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

// hostPorts are the containers' own in a pod that uses the host's network.
func hostPorts(containers []corev1.Container) {
	for i := range containers {
		for j := range containers[i].Ports {
			p := &containers[i].Ports[j]
			declare.Fill(&p.HostPort, p.ContainerPort)
		}
	}
}

// pairAddresses keeps the one address and the first of all addresses the same.
// Where they differ the one counts: its writer does not know the list.
func pairAddresses(s *corev1.PodStatus) {
	switch {
	case s.PodIP == "" && len(s.PodIPs) > 0:
		s.PodIP = s.PodIPs[0].IP
	case s.PodIP != "" && (len(s.PodIPs) == 0 || s.PodIPs[0].IP != s.PodIP):
		s.PodIPs = []corev1.PodIP{{IP: s.PodIP}}
	}
}
