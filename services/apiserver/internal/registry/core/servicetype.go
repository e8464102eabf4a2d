package core

import (
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// dropOfOtherType drops from a service whose type changes what only the old
// type had. What the client changed itself stays, for validation to refuse.
func dropOfOtherType(s, old *corev1.Service) {
	spec, was := &s.Spec, &old.Spec
	if hasClusterIP(was) && !hasClusterIP(spec) {
		if spec.ClusterIP == was.ClusterIP && slices.Equal(spec.ClusterIPs, was.ClusterIPs) {
			spec.ClusterIP, spec.ClusterIPs = "", nil
		}
		if slices.Equal(spec.IPFamilies, was.IPFamilies) {
			spec.IPFamilies = nil
		}
		dropSame(&spec.IPFamilyPolicy, was.IPFamilyPolicy)
	}
	if hasNodePort(was) && !hasNodePort(spec) && slices.Equal(nodePorts(spec), nodePorts(was)) {
		for i := range spec.Ports {
			spec.Ports[i].NodePort = 0
		}
	}
	if hasHealthCheckPort(was) && !hasHealthCheckPort(spec) && spec.HealthCheckNodePort == was.HealthCheckNodePort {
		spec.HealthCheckNodePort = 0
	}
	if was.Type == corev1.ServiceTypeLoadBalancer && spec.Type != corev1.ServiceTypeLoadBalancer {
		dropSame(&spec.AllocateLoadBalancerNodePorts, was.AllocateLoadBalancerNodePorts)
		dropSame(&spec.LoadBalancerClass, was.LoadBalancerClass)
		s.Status.LoadBalancer = corev1.LoadBalancerStatus{} // nothing balances it from now on
	}
	if reachableOutside(was) && !reachableOutside(spec) && spec.ExternalTrafficPolicy == was.ExternalTrafficPolicy {
		spec.ExternalTrafficPolicy = ""
	}
	if was.Type == corev1.ServiceTypeExternalName && spec.Type != corev1.ServiceTypeExternalName && spec.ExternalName == was.ExternalName {
		spec.ExternalName = ""
	}
	if hasClusterIP(was) && !hasClusterIP(spec) {
		dropSame(&spec.InternalTrafficPolicy, was.InternalTrafficPolicy)
	}
}

// dropSame forgets a value that the client left as it was.
func dropSame[T any](now **T, was *T) {
	if reflect.DeepEqual(*now, was) {
		*now = nil
	}
}

func hasClusterIP(s *corev1.ServiceSpec) bool { return s.Type != corev1.ServiceTypeExternalName }

func hasNodePort(s *corev1.ServiceSpec) bool {
	return s.Type == corev1.ServiceTypeNodePort || s.Type == corev1.ServiceTypeLoadBalancer
}

func hasHealthCheckPort(s *corev1.ServiceSpec) bool {
	return s.Type == corev1.ServiceTypeLoadBalancer && s.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}

// reachableOutside tells of services that traffic from outside the cluster can
// be sent to.
func reachableOutside(s *corev1.ServiceSpec) bool {
	return hasNodePort(s) || s.Type == corev1.ServiceTypeClusterIP && len(s.ExternalIPs) > 0
}

func nodePorts(s *corev1.ServiceSpec) []int32 {
	out := make([]int32, len(s.Ports))
	for i := range s.Ports {
		out[i] = s.Ports[i].NodePort
	}
	return out
}
