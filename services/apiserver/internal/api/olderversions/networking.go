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
	ingress := &networkingv1.Ingress{}
	if err := copyByFieldNumber(old, ingress); err != nil {
		return nil, err
	}
	if backend := old.Spec.Backend; backend != nil {
		ingress.Spec.DefaultBackend.Service = backendService(backend)
	}
	for i := range ingress.Spec.Rules {
		http := ingress.Spec.Rules[i].HTTP
		if http == nil {
			continue
		}
		for j := range http.Paths {
			http.Paths[j].Backend.Service = backendService(&old.Spec.Rules[i].HTTP.Paths[j].Backend)
			declare.SetDefaultPtr(&http.Paths[j].PathType, networkingv1.PathTypeImplementationSpecific)
		}
	}
	return ingress, nil
}

// backendService returns the service of a backend, or nil if it has none.
func backendService(ingressBackend *networkingv1beta1.IngressBackend) *networkingv1.IngressServiceBackend {
	port := ingressBackend.ServicePort
	if ingressBackend.ServiceName == "" && port.IntVal == 0 && port.StrVal == "" && port.Type != intstr.String {
		return nil
	}
	return &networkingv1.IngressServiceBackend{
		Name: ingressBackend.ServiceName,
		Port: networkingv1.ServiceBackendPort{Name: port.StrVal, Number: port.IntVal},
	}
}

// convertEndpointSlice converts an EndpointSlice of discovery.k8s.io/v1beta1.
func convertEndpointSlice(old *discoveryv1beta1.EndpointSlice) (*discoveryv1.EndpointSlice, error) {
	endpointSlice := &discoveryv1.EndpointSlice{ObjectMeta: old.ObjectMeta, AddressType: discoveryv1.AddressType(old.AddressType)}
	for i := range old.Endpoints {
		endpointSlice.Endpoints = append(endpointSlice.Endpoints, convertEndpoint(&old.Endpoints[i]))
	}
	for _, p := range old.Ports {
		endpointSlice.Ports = append(endpointSlice.Ports, discoveryv1.EndpointPort(p))
	}
	return endpointSlice, nil
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
	if endpointHints := old.Hints; endpointHints != nil {
		endpoint.Hints = &discoveryv1.EndpointHints{}
		for _, zone := range endpointHints.ForZones {
			endpoint.Hints.ForZones = append(endpoint.Hints.ForZones, discoveryv1.ForZone(zone))
		}
		for _, node := range endpointHints.ForNodes {
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
