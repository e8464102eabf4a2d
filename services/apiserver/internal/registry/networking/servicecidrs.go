package networking

import (
	"strings"

	networkingv1 "k8s.io/api/networking/v1"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
)

func serviceCIDRs() *registry.Kind {
	return &registry.Kind{
		Group: group, Version: version, Resource: "servicecidrs", Singular: "servicecidr", Kind: "ServiceCIDR",
		New:        declare.New[networkingv1.ServiceCIDR],
		NewList:    declare.New[networkingv1.ServiceCIDRList],
		Stored:     storedAsBeta("servicecidrs"),
		KeepStatus: true,
		Columns: []registry.Column{
			columns.Name(),
			columns.Text("CIDRs", columns.Doc(networkingv1.ServiceCIDRSpec{}, "cidrs"), func(c *networkingv1.ServiceCIDR) string {
				return strings.Join(c.Spec.CIDRs, ",")
			}),
			columns.Age(),
		},
		Subresources: []registry.Subresource{
			declare.View("status", "ServiceCIDR", declare.Change(func(c, old *networkingv1.ServiceCIDR) {
				c.Spec = old.Spec
				declare.KeepMeta(c, old)
			})),
		},
	}
}
