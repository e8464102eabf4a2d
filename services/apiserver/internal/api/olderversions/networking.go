package olderversions

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	discoveryv1beta1 "k8s.io/api/discovery/v1beta1"
	networkingv1 "k8s.io/api/networking/v1"
	networkingv1beta1 "k8s.io/api/networking/v1beta1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"binnacle/services/apiserver/internal/registry/declare"
)

// convertIngress converts an Ingress of networking.k8s.io/v1beta1, or of extensions/v1beta1, which
// has the same fields. In both, a backend has the fields serviceName and servicePort. In v1, they
// are in an object: service.name and service.port.
func convertIngress(old *networkingv1beta1.Ingress) (*networkingv1.Ingress, error) {
	i := &networkingv1.Ingress{}
	if err := copyByFieldNumber(old, i); err != nil {
		return nil, err
	}
	if b := old.Spec.Backend; b != nil {
		i.Spec.DefaultBackend.Service = backendService(b)
	}
	for r := range i.Spec.Rules {
		http := i.Spec.Rules[r].HTTP
		if http == nil {
			continue
		}
		for p := range http.Paths {
			http.Paths[p].Backend.Service = backendService(&old.Spec.Rules[r].HTTP.Paths[p].Backend)
			declare.SetDefaultPtr(&http.Paths[p].PathType, networkingv1.PathTypeImplementationSpecific)
		}
	}
	return i, nil
}

// backendService returns the service of a backend, or nil if it has none.
func backendService(b *networkingv1beta1.IngressBackend) *networkingv1.IngressServiceBackend {
	port := b.ServicePort
	if b.ServiceName == "" && port.IntVal == 0 && port.StrVal == "" && port.Type != intstr.String {
		return nil
	}
	return &networkingv1.IngressServiceBackend{
		Name: b.ServiceName,
		Port: networkingv1.ServiceBackendPort{Name: port.StrVal, Number: port.IntVal},
	}
}

// convertEndpointSlice converts an EndpointSlice of discovery.k8s.io/v1beta1.
func convertEndpointSlice(old *discoveryv1beta1.EndpointSlice) (*discoveryv1.EndpointSlice, error) {
	s := &discoveryv1.EndpointSlice{ObjectMeta: old.ObjectMeta, AddressType: discoveryv1.AddressType(old.AddressType)}
	for i := range old.Endpoints {
		s.Endpoints = append(s.Endpoints, convertEndpoint(&old.Endpoints[i]))
	}
	for _, p := range old.Ports {
		s.Ports = append(s.Ports, discoveryv1.EndpointPort(p))
	}
	return s, nil
}

// convertEndpoint converts an endpoint of discovery.k8s.io/v1beta1. In that version, the map
// topology may also contain the zone and the name of the node. In v1, these are separate fields.
func convertEndpoint(old *discoveryv1beta1.Endpoint) discoveryv1.Endpoint {
	endpoint := discoveryv1.Endpoint{
		Addresses:  old.Addresses,
		Conditions: discoveryv1.EndpointConditions(old.Conditions),
		Hostname:   old.Hostname,
		TargetRef:  old.TargetRef,
		NodeName:   old.NodeName,
	}
	if h := old.Hints; h != nil {
		endpoint.Hints = &discoveryv1.EndpointHints{}
		for _, zone := range h.ForZones {
			endpoint.Hints.ForZones = append(endpoint.Hints.ForZones, discoveryv1.ForZone(zone))
		}
		for _, node := range h.ForNodes {
			endpoint.Hints.ForNodes = append(endpoint.Hints.ForNodes, discoveryv1.ForNode(node))
		}
	}
	topology := maps.Clone(old.Topology)
	if zone, ok := topology[corev1.LabelTopologyZone]; ok {
		endpoint.Zone = &zone
		delete(topology, corev1.LabelTopologyZone)
	}
	if node, ok := topology[corev1.LabelHostname]; ok && endpoint.NodeName != nil && *endpoint.NodeName == node {
		delete(topology, corev1.LabelHostname)
	}
	if len(topology) > 0 {
		endpoint.DeprecatedTopology = topology
	}
	return endpoint
}
