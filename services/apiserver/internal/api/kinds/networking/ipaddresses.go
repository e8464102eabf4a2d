package networking

import (
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
	"binnacle/services/apiserver/internal/registry/validate"
)

// ipAddresses declares the cluster-scoped kind IPAddress.
func ipAddresses() *registry.Kind {
	return declare.Kind[networkingv1.IPAddress, networkingv1.IPAddressList](&registry.Kind{
		Names: registry.Names{
			Group: group, Version: version, Resource: "ipaddresses", Kind: "IPAddress", ShortNames: []string{"ip"},
			ValidateName: validateAddressName,
		},
		Stored: betaStorageForm("ipaddresses"),
		Create: registry.Create{
			PrefixIsName: true,
			Validate: declare.AdaptValidation(func(fld validate.Field, a *networkingv1.IPAddress) {
				validateParent(fld.Child("spec"), a.Spec.ParentRef)
			}),
		},
		Update: registry.Update{
			Order: registry.Order{registry.MetaRules, registry.CreateRules, registry.MetaUpdateRules, registry.UpdateRules},
			Validate: declare.AdaptUpdateValidation(func(fld validate.Field, a, old *networkingv1.IPAddress) {
				fld.Child("spec").CheckImmutable("parentRef", a.Spec.ParentRef, old.Spec.ParentRef)
			}),
		},
		Presentation: registry.Presentation{Columns: []registry.Column{
			columns.Name(),
			columns.Text("ParentRef", columns.Doc(networkingv1.IPAddressSpec{}, "parentRef"), parentText),
			columns.Unnamed(columns.Age()),
		}},
	})
}

// validateAddressName requires a canonical address. The name cannot be generated.
func validateAddressName(name string, _ bool) []string {
	var out []string
	for _, err := range validation.IsValidIP(nil, name) {
		out = append(out, err.Detail)
	}
	return out
}

// validateParent requires a parent. Its group may be the core group, which is "".
func validateParent(fld validate.Field, parentReference *networkingv1.ParentReference) {
	if parentReference == nil {
		fld.Required("parentRef", "")
		return
	}
	parent := fld.Child("parentRef")
	parent.CheckOptionalText("group", parentReference.Group, validate.DNSSubdomain)
	parent.CheckRequiredText("resource", parentReference.Resource, validate.PathSegment)
	parent.CheckRequiredText("name", parentReference.Name, validate.PathSegment)
	parent.CheckOptionalText("namespace", parentReference.Namespace, validate.PathSegment)
}

// parentText returns a text such as "services/default/kubernetes".
func parentText(a *networkingv1.IPAddress) string {
	ref := a.Spec.ParentRef
	if ref == nil {
		return columns.None
	}
	parts := []string{strings.ToLower(schema.GroupResource{Group: ref.Group, Resource: ref.Resource}.String())}
	if ref.Namespace != "" {
		parts = append(parts, ref.Namespace)
	}
	return strings.Join(append(parts, ref.Name), "/")
}
