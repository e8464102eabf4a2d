package networking

import (
	corev1 "k8s.io/api/core/v1"
	extensionsv1beta1 "k8s.io/api/extensions/v1beta1"
	networkingv1 "k8s.io/api/networking/v1"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
)

func networkPolicies() *registry.Kind {
	return &registry.Kind{
		Group: group, Version: version, Resource: "networkpolicies", Singular: "networkpolicy", Kind: "NetworkPolicy",
		ShortNames: []string{"netpol"}, Namespaced: true,
		New:        declare.New[networkingv1.NetworkPolicy],
		NewList:    declare.New[networkingv1.NetworkPolicyList],
		Stored:     registry.Stored{Prefix: "networkpolicies"},
		Default:    declare.Do(defaultNetworkPolicy),
		Generation: true,
		Columns: []registry.Column{
			columns.Name(),
			// Described as in an older version, as clients know it.
			columns.Text("Pod-Selector", columns.Doc(extensionsv1beta1.NetworkPolicySpec{}, "podSelector"), func(p *networkingv1.NetworkPolicy) string {
				return columns.Selector(&p.Spec.PodSelector)
			}),
			columns.Age(),
		},
	}
}

// defaultNetworkPolicy always governs what comes in, and what goes out if there
// is a rule for it.
func defaultNetworkPolicy(p *networkingv1.NetworkPolicy) {
	for i := range p.Spec.Ingress {
		defaultPolicyPorts(p.Spec.Ingress[i].Ports)
	}
	for i := range p.Spec.Egress {
		defaultPolicyPorts(p.Spec.Egress[i].Ports)
	}
	if len(p.Spec.PolicyTypes) > 0 {
		return
	}
	p.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
	if len(p.Spec.Egress) > 0 {
		p.Spec.PolicyTypes = append(p.Spec.PolicyTypes, networkingv1.PolicyTypeEgress)
	}
}

func defaultPolicyPorts(ports []networkingv1.NetworkPolicyPort) {
	for i := range ports {
		declare.FillPtr(&ports[i].Protocol, corev1.ProtocolTCP)
	}
}
