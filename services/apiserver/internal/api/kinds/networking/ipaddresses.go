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

func ipAddresses() *registry.Kind {
	return &registry.Kind{
		Names: registry.Names{
			Group: group, Version: version, Resource: "ipaddresses", Singular: "ipaddress", Kind: "IPAddress",
			ShortNames:   []string{"ip"},
			ValidateName: addressName,
		},
		New:     declare.New[networkingv1.IPAddress],
		NewList: declare.New[networkingv1.IPAddressList],
		Stored:  storedAsBeta("ipaddresses"),
		Create: registry.Create{Validate: declare.AdaptValidation(func(fldPath validate.Path, a *networkingv1.IPAddress) {
			parentRules(fldPath.Child("spec"), a.Spec.ParentRef)
		})},
		Update: registry.Update{Order: registry.Order{registry.MetaRules, registry.CreateRules, registry.MetaUpdateRules, registry.UpdateRules}, Validate: declare.AdaptUpdateValidation(func(fldPath validate.Path, a, old *networkingv1.IPAddress) {
			fldPath.Child("spec").Immutable("parentRef", a.Spec.ParentRef, old.Spec.ParentRef)
		})},
		Presentation: registry.Presentation{Columns: []registry.Column{
			columns.Name(),
			columns.Text("ParentRef", columns.Doc(networkingv1.IPAddressSpec{}, "parentRef"), parentText),
			columns.Unnamed(columns.Age()),
		}},
	}
}

// addressName requires a canonical address. The name cannot be generated.
func addressName(name string, _ bool) []string {
	var out []string
	for _, err := range validation.IsValidIP(nil, name) {
		out = append(out, err.Detail)
	}
	return out
}

// parentRules requires a parent. Its group may be the core group, which is "".
func parentRules(fldPath validate.Path, p *networkingv1.ParentReference) {
	if p == nil {
		fldPath.Required("parentRef", "")
		return
	}
	parent := fldPath.Child("parentRef")
	parent.OptionalText("group", p.Group, validate.DNSSubdomain)
	parent.RequiredText("resource", p.Resource, validate.PathSegment)
	parent.RequiredText("name", p.Name, validate.PathSegment)
	parent.OptionalText("namespace", p.Namespace, validate.PathSegment)
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
