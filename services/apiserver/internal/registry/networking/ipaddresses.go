package networking

import (
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
)

func ipAddresses() *registry.Kind {
	return &registry.Kind{
		Group: group, Version: version, Resource: "ipaddresses", Singular: "ipaddress", Kind: "IPAddress",
		ShortNames:   []string{"ip"},
		New:          declare.New[networkingv1.IPAddress],
		NewList:      declare.New[networkingv1.IPAddressList],
		Stored:       storedAsBeta("ipaddresses"),
		ValidateName: addressName,
		Columns: []registry.Column{
			columns.Name(),
			columns.Text("ParentRef", columns.Doc(networkingv1.IPAddressSpec{}, "parentRef"), parentText),
		},
	}
}

// addressName wants the address itself, in its canonical form; it cannot be
// generated.
func addressName(name string, _ bool) []string {
	var out []string
	for _, err := range validation.IsValidIP(nil, name) {
		out = append(out, err.Detail)
	}
	return out
}

// parentText is like "services/default/kubernetes".
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
