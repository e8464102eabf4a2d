package networking

import (
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"binnacle/services/apiserver/internal/registry/validate"
)

// validateNetworkPolicy validates a policy. old is nil at creation.
func validateNetworkPolicy(fld validate.Field, p, old *networkingv1.NetworkPolicy) {
	s, spec := &p.Spec, fld.Child("spec")
	// Stored policies may have invalid label values in selectors from before they were validated.
	anyValue := old != nil && hasInvalidValue(&old.Spec)
	spec.CheckSelector("podSelector", &s.PodSelector, anyValue)
	validate.Each(spec, "ingress", s.Ingress, func(fld validate.Field, r *networkingv1.NetworkPolicyIngressRule) {
		validate.Each(fld, "ports", r.Ports, validatePolicyPort)
		validate.Each(
			fld,
			"from",
			r.From,
			func(fld validate.Field, p *networkingv1.NetworkPolicyPeer) { validatePeer(fld, p, anyValue) },
		)
	})
	validate.Each(spec, "egress", s.Egress, func(fld validate.Field, r *networkingv1.NetworkPolicyEgressRule) {
		validate.Each(fld, "ports", r.Ports, validatePolicyPort)
		validate.Each(fld, "to", r.To, func(fld validate.Field, p *networkingv1.NetworkPolicyPeer) { validatePeer(fld, p, anyValue) })
	})
	if len(s.PolicyTypes) > 2 {
		spec.Invalid("policyTypes", s.PolicyTypes, "may not specify more than two policyTypes")
		return
	}
	validate.Each(spec, "policyTypes", s.PolicyTypes, func(fld validate.Field, t *networkingv1.PolicyType) {
		validate.OneOf(fld, "", *t, networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress)
	})
}

// validatePolicyPort validates a port, which may be a name, or a range of ports.
func validatePolicyPort(fld validate.Field, port *networkingv1.NetworkPolicyPort) {
	validate.OptionalOneOf(fld, "protocol", port.Protocol, corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP)
	switch {
	case port.Port == nil:
		if port.EndPort != nil {
			fld.Invalid("endPort", *port.EndPort, "may not be specified when `port` is not specified")
		}
	case port.Port.Type == intstr.Int:
		fld.CheckPortOrName("port", *port.Port)
		if port.EndPort != nil {
			if *port.EndPort < port.Port.IntVal {
				fld.Invalid("endPort", port.Port.IntVal, "must be greater than or equal to `port`")
			}
			fld.CheckPort("endPort", *port.EndPort)
		}
	default:
		if port.EndPort != nil {
			fld.Invalid("endPort", *port.EndPort, "may not be specified when `port` is non-numeric")
		}
		fld.CheckPortOrName("port", *port.Port)
	}
}

// validatePeer requires selectors or an address block. With anyValue, selectors may have invalid label
// values.
func validatePeer(fld validate.Field, peer *networkingv1.NetworkPolicyPeer, anyValue bool) {
	fld.CheckSelector("podSelector", peer.PodSelector, anyValue)
	fld.CheckSelector("namespaceSelector", peer.NamespaceSelector, anyValue)
	validate.Optional(fld, "ipBlock", peer.IPBlock, validateIPBlock)
	switch hasSelector := peer.PodSelector != nil || peer.NamespaceSelector != nil; {
	case !hasSelector && peer.IPBlock == nil:
		fld.Required("", "must specify a peer")
	case hasSelector && peer.IPBlock != nil:
		fld.Forbidden("", "may not specify both ipBlock and another peer")
	}
}

// validateIPBlock requires a CIDR, and exceptions within it.
func validateIPBlock(fld validate.Field, ipBlock *networkingv1.IPBlock) {
	if ipBlock.CIDR == "" {
		fld.Required("cidr", "")
		return
	}
	fld.CheckCIDR("cidr", ipBlock.CIDR)
	_, block, err := netutils.ParseCIDRSloppy(ipBlock.CIDR)
	if err != nil {
		return
	}
	validate.Each(fld, "except", ipBlock.Except, func(fld validate.Field, except *string) {
		fld.CheckCIDR("", *except)
		_, exception, err := netutils.ParseCIDRSloppy(*except)
		if err != nil {
			return
		}
		prefixLength, _ := block.Mask.Size()
		if longer, _ := exception.Mask.Size(); !block.Contains(exception.IP) || prefixLength >= longer {
			fld.Invalid("", *except, "must be a strict subset of `cidr`")
		}
	})
}

func eachPeer(s *networkingv1.NetworkPolicySpec, visit func(*field.Path, *networkingv1.NetworkPolicyPeer)) {
	spec := field.NewPath("spec")
	for i := range s.Ingress {
		for j := range s.Ingress[i].From {
			visit(spec.Child("ingress").Index(i).Child("from").Index(j), &s.Ingress[i].From[j])
		}
	}
	for i := range s.Egress {
		for j := range s.Egress[i].To {
			visit(spec.Child("egress").Index(i).Child("to").Index(j), &s.Egress[i].To[j])
		}
	}
}

// hasInvalidValue reports whether a selector of the policy has an invalid label value.
func hasInvalidValue(s *networkingv1.NetworkPolicySpec) bool {
	found := validate.HasInvalidLabelValue(&s.PodSelector)
	eachPeer(s, func(_ *field.Path, p *networkingv1.NetworkPolicyPeer) {
		found = found || validate.HasInvalidLabelValue(p.PodSelector) || validate.HasInvalidLabelValue(p.NamespaceSelector)
	})
	return found
}

// networkPolicyWarnings returns warnings for non-canonical CIDRs.
func networkPolicyWarnings(networkPolicy *networkingv1.NetworkPolicy) (texts []string) {
	eachPeer(&networkPolicy.Spec, func(path *field.Path, peer *networkingv1.NetworkPolicyPeer) {
		if peer.IPBlock == nil {
			return
		}
		block := path.Child("ipBlock")
		texts = append(texts, validate.CIDRWarnings(block.Child("cidr"), peer.IPBlock.CIDR)...)
		for i, except := range peer.IPBlock.Except {
			texts = append(texts, validate.CIDRWarnings(block.Child("except").Index(i), except)...)
		}
	})
	return texts
}
