package discoverygroup

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	discoveryv1beta1 "k8s.io/api/discovery/v1beta1"
	"k8s.io/apimachinery/pkg/api/equality"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
)

func endpointSlices() *registry.Kind {
	// Described as in an older version, as clients know it.
	doc := func(name string) string { return columns.Doc(discoveryv1beta1.EndpointSlice{}, name) }
	return &registry.Kind{
		Group: group, Version: version, Resource: "endpointslices", Singular: "endpointslice", Kind: "EndpointSlice",
		Namespaced:    true,
		New:           declare.New[discoveryv1.EndpointSlice],
		NewList:       declare.New[discoveryv1.EndpointSliceList],
		Stored:        registry.Stored{Prefix: "endpointslices"},
		Default:       declare.Do(defaultSlice),
		Generation:    true,
		PrepareCreate: declare.Do(dropTopology),
		PrepareUpdate: declare.Change(prepareSliceUpdate),
		Columns: []registry.Column{
			columns.Name(),
			columns.Text("AddressType", doc("addressType"), func(s *discoveryv1.EndpointSlice) string { return string(s.AddressType) }),
			columns.Text("Ports", doc("ports"), portsText),
			columns.Text("Endpoints", doc("endpoints"), endpointsText),
			columns.Age(),
		},
	}
}

func defaultSlice(s *discoveryv1.EndpointSlice) {
	for i := range s.Ports {
		declare.FillPtr(&s.Ports[i].Name, "")
		declare.FillPtr(&s.Ports[i].Protocol, corev1.ProtocolTCP)
	}
}

// dropTopology clears the field of older versions of the group.
func dropTopology(s *discoveryv1.EndpointSlice) {
	for i := range s.Endpoints {
		s.Endpoints[i].DeprecatedTopology = nil
	}
}

// prepareSliceUpdate raises the generation for labels as well: they say which
// service a slice belongs to.
func prepareSliceUpdate(s, old *discoveryv1.EndpointSlice) {
	if !equality.Semantic.DeepEqual(s.Endpoints, old.Endpoints) {
		dropTopology(s)
	}
	if !equality.Semantic.DeepEqual(s.Labels, old.Labels) {
		s.Generation = old.Generation + 1
	}
}

// told is how many ports and addresses are told.
const told = 3

// portsText tells ports by number, else by name; "*" is every port.
func portsText(s *discoveryv1.EndpointSlice) string {
	ports := make([]string, len(s.Ports))
	for i, p := range s.Ports {
		switch {
		case p.Port != nil:
			ports[i] = strconv.Itoa(int(*p.Port))
		case p.Name != nil:
			ports[i] = *p.Name
		default:
			ports[i] = "*"
		}
	}
	return firstOrUnset(ports)
}

func endpointsText(s *discoveryv1.EndpointSlice) string {
	var all []string
	for _, e := range s.Endpoints {
		all = append(all, e.Addresses...)
	}
	return firstOrUnset(all)
}

func firstOrUnset(texts []string) string {
	if len(texts) == 0 {
		return columns.Unset
	}
	return columns.Or(columns.First(texts, told), columns.Unset)
}
