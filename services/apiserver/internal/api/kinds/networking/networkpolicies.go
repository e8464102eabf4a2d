package networking

import (
	corev1 "k8s.io/api/core/v1"
	extensionsv1beta1 "k8s.io/api/extensions/v1beta1"
	networkingv1 "k8s.io/api/networking/v1"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
	"binnacle/services/apiserver/internal/registry/validate"
)

// networkPolicies declares the namespaced kind NetworkPolicy.
func networkPolicies() *registry.Kind {
	return declare.Kind[networkingv1.NetworkPolicy, networkingv1.NetworkPolicyList](&registry.Kind{
		Names: registry.Names{
			Group: group, Version: version, Resource: "networkpolicies", Kind: "NetworkPolicy",
			ShortNames: []string{"netpol"}, Namespaced: true,
		},
		// As in Kubernetes, generation also counts a change between an absent and an empty list.
		Parts:   declare.ExactSpecAccessors(func(p *networkingv1.NetworkPolicy) *networkingv1.NetworkPolicySpec { return &p.Spec }),
		Default: declare.Adapt(defaultNetworkPolicy),
		Create: registry.Create{
			Validate: declare.AdaptValidation(
				func(fld validate.Field, p *networkingv1.NetworkPolicy) { validateNetworkPolicy(fld, p, nil) },
			),
			Warnings: declare.AdaptResult(networkPolicyWarnings),
		},
		Update: registry.Update{
			Order:      registry.Order{registry.MetaRules, registry.MetaUpdateRules, registry.UpdateRules},
			Generation: true,
			Validate: declare.AdaptUpdateValidation(func(fld validate.Field, p, old *networkingv1.NetworkPolicy) {
				// Kubernetes applies these rules to the object and again to the change, and reports
				// the errors of both.
				fld.RecordTwice(func() { validateNetworkPolicy(fld, p, old) })
			}),
		},
		Presentation: registry.Presentation{Columns: []registry.Column{
			columns.Name(),
			// The description is that of an older version, as in Kubernetes.
			columns.Text(
				"Pod-Selector",
				columns.Doc(extensionsv1beta1.NetworkPolicySpec{}, "podSelector"),
				func(p *networkingv1.NetworkPolicy) string {
					return columns.Selector(&p.Spec.PodSelector)
				},
			),
			columns.Age(),
		}},
	})
}

// defaultNetworkPolicy sets the protocol of ports without one to TCP. If the policy has no policy
// types, it sets Ingress, and also Egress if there is an egress rule.
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
		declare.SetDefaultPtr(&ports[i].Protocol, corev1.ProtocolTCP)
	}
}
