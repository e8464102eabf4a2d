package core

import (
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// dropOfOtherType clears fields that only the old type of a service has, after a change
// of its type. A field that the client changed as well stays, and validation rejects it.
func dropOfOtherType(service, old *corev1.Service) {
	spec, was := &service.Spec, &old.Spec
	if hasClusterIP(was) && !hasClusterIP(spec) {
		if spec.ClusterIP == was.ClusterIP && slices.Equal(spec.ClusterIPs, was.ClusterIPs) {
			spec.ClusterIP = ""
			spec.ClusterIPs = nil
		}
		if slices.Equal(spec.IPFamilies, was.IPFamilies) {
			spec.IPFamilies = nil
		}
		dropSame(&spec.IPFamilyPolicy, was.IPFamilyPolicy)
	}
	if hasNodePort(was) && !hasNodePort(spec) && !addsNodePort(spec, was) {
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
	}
	if spec.Type != corev1.ServiceTypeLoadBalancer {
		service.Status.LoadBalancer = corev1.LoadBalancerStatus{}
	}
	if isReachableFromOutside(was) && !isReachableFromOutside(spec) && spec.ExternalTrafficPolicy == was.ExternalTrafficPolicy {
		spec.ExternalTrafficPolicy = ""
	}
}

// dropSame clears a value that the client did not change.
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

// isReachableFromOutside reports whether a service accepts traffic from outside the cluster.
func isReachableFromOutside(s *corev1.ServiceSpec) bool {
	return hasNodePort(s) || s.Type == corev1.ServiceTypeClusterIP && len(s.ExternalIPs) > 0
}

func addsNodePort(s, old *corev1.ServiceSpec) bool {
	return slices.ContainsFunc(s.Ports, func(p corev1.ServicePort) bool {
		return p.NodePort != 0 && !slices.ContainsFunc(old.Ports, func(o corev1.ServicePort) bool { return o.NodePort == p.NodePort })
	})
}
