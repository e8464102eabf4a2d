package networking

import (
	"strings"

	netutils "k8s.io/utils/net"

	networkingv1 "k8s.io/api/networking/v1"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
	"binnacle/services/apiserver/internal/registry/validate"
)

// serviceCIDRs declares the cluster-scoped kind ServiceCIDR.
func serviceCIDRs() *registry.Kind {
	return declare.Kind[networkingv1.ServiceCIDR, networkingv1.ServiceCIDRList](&registry.Kind{
		Names: registry.Names{Group: group, Version: version, Resource: "servicecidrs", Kind: "ServiceCIDR"},
		Parts: declare.SpecStatusAccessors(func(s *networkingv1.ServiceCIDR) (*networkingv1.ServiceCIDRSpec, *networkingv1.ServiceCIDRStatus) {
			return &s.Spec, &s.Status
		}),
		Stored: betaStorageForm("servicecidrs"),
		Create: registry.Create{KeepStatus: true, Validate: declare.AdaptValidation(validateServiceCIDR)},
		// As in Kubernetes, a manager that sends status or spec owns it, even if it is reset.
		Update: registry.Update{
			ResetFields: []string{},
			Validate:    declare.AdaptUpdateValidation(validateRangeChanges),
		},
		Presentation: registry.Presentation{Columns: []registry.Column{
			columns.Name(),
			columns.Text("CIDRs", columns.Doc(networkingv1.ServiceCIDRSpec{}, "cidrs"), func(c *networkingv1.ServiceCIDR) string {
				return strings.Join(c.Spec.CIDRs, ",")
			}),
			columns.Age(),
		}},
		Subresources: []registry.Subresource{
			declare.WithResetFields(declare.View("status", "ServiceCIDR", declare.AdaptUpdate(func(c, old *networkingv1.ServiceCIDR) {
				c.Spec = old.Spec
				declare.ResetMetaForStatus(c, old)
			}))),
		},
	})
}

// maxCIDRs allows one range of each IP family.
const maxCIDRs = 2

func validateServiceCIDR(fld validate.Field, serviceCIDR *networkingv1.ServiceCIDR) {
	spec, cidrs := fld.Child("spec"), serviceCIDR.Spec.CIDRs
	switch {
	case len(cidrs) == 0:
		spec.Required("cidrs", "at least one CIDR required")
		return
	case len(cidrs) > maxCIDRs:
		spec.Invalid("cidrs", serviceCIDR.Spec, "may only hold up to 2 values")
		return
	}
	validate.Each(spec, "cidrs", cidrs, func(fld validate.Field, cidr *string) { fld.CheckCanonicalCIDR("", *cidr) })
	if len(cidrs) == maxCIDRs {
		if dual, err := netutils.IsDualStackCIDRStrings(cidrs); err == nil && !dual {
			spec.Invalid("cidrs", cidrs, "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64")
		}
	}
}

// validateRangeChanges allows adding and removing a second family. The first range is immutable.
func validateRangeChanges(fld validate.Field, serviceCIDR, old *networkingv1.ServiceCIDR) {
	spec := fld.Child("spec")
	now := serviceCIDR.Spec.CIDRs
	was := old.Spec.CIDRs
	if len(now) == 0 || len(was) == 0 || len(now) == len(was) && now[0] == was[0] {
		spec.CheckImmutable("cidrs", now, was)
		return
	}
	spec.Index("cidrs", 0).CheckImmutable("", now[0], was[0])
	if len(now) > len(was) {
		validateServiceCIDR(fld, serviceCIDR)
	}
}
