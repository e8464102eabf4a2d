package discoverygroup

import (
	"cmp"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	discoveryv1beta1 "k8s.io/api/discovery/v1beta1"

	"binnacle/libs/features"
	"binnacle/services/apiserver/internal/json/transcode"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
	"binnacle/services/apiserver/internal/registry/validate"
)

// endpointSlices declares the namespaced kind EndpointSlice.
func endpointSlices(settings registry.Settings) *registry.Kind {
	dropHints := dropNodeHints
	if settings.Enabled(features.PreferSameTrafficDistribution) {
		dropHints = func(_, _ *discoveryv1.EndpointSlice) {}
	}
	// Like Kubernetes, the columns use the v1beta1 field descriptions.
	doc := func(name string) string { return columns.Doc(discoveryv1beta1.EndpointSlice{}, name) }
	return declare.Kind[discoveryv1.EndpointSlice, discoveryv1.EndpointSliceList](&registry.Kind{
		Names:          registry.Names{Group: group, Version: version, Resource: "endpointslices", Kind: "EndpointSlice", Namespaced: true},
		Parts:          registry.SpecStatusAccessors{SpecChanged: declare.AdaptUpdateResult(sliceChanged)},
		Default:        declare.Adapt(defaultSlice),
		DefaultedRules: transcode.Rules(transcode.FieldsSet[discoveryv1.EndpointPort]("name", "protocol")),
		Create: registry.Create{
			Prepare: declare.Adapt(func(endpointSlice *discoveryv1.EndpointSlice) {
				dropTopology(endpointSlice)
				dropHints(endpointSlice, nil)
			}),
			Validate: declare.AdaptValidation(func(fld validate.Field, endpointSlice *discoveryv1.EndpointSlice) {
				validateSlice(fld, endpointSlice, nil)
			}),
			Warnings: declare.AdaptResult(sliceWarnings),
		},
		Update: registry.Update{
			Order: registry.Order{registry.MetaRules, registry.UpdateRules},
			// Generation sets the generation 1 at creation, and increments it if SpecChanged
			// reports a change of the stored object. Prepare covers changes that it drops again.
			Generation: true,
			// As in Kubernetes, only a create warns about FQDN addresses: the address type is
			// immutable, so an update cannot fix it.
			Warnings: func(obj, _ registry.Object) []string { return addressWarnings(obj.(*discoveryv1.EndpointSlice)) },
			Prepare: declare.AdaptUpdate(func(endpointSlice, old *discoveryv1.EndpointSlice) {
				// As in Kubernetes, a change increments the generation even if the lines below drop
				// it.
				if sliceChanged(endpointSlice, old) {
					endpointSlice.SetGeneration(old.Generation + 1)
				}
				dropHints(endpointSlice, old)
				if !validate.SemanticEqual(endpointSlice.Endpoints, old.Endpoints) {
					dropTopology(endpointSlice)
				}
			}),
			Validate: declare.AdaptUpdateValidation(func(fld validate.Field, endpointSlice, old *discoveryv1.EndpointSlice) {
				validateSlice(fld, endpointSlice, old)
				fld.CheckImmutable("addressType", endpointSlice.AddressType, old.AddressType)
			}),
		},
		Presentation: registry.Presentation{Columns: []registry.Column{
			columns.Name(),
			columns.Text("AddressType", doc("addressType"), func(endpointSlice *discoveryv1.EndpointSlice) string { return string(endpointSlice.AddressType) }),
			columns.Text("Ports", doc("ports"), portsText),
			columns.Text("Endpoints", doc("endpoints"), endpointsText),
			columns.Age(),
		}},
	})
}

// sliceChanged reports whether any field outside the metadata differs, or the labels. The labels
// count because they name the service of a slice.
func sliceChanged(s, old *discoveryv1.EndpointSlice) bool {
	return !validate.SemanticEqual(s.Labels, old.Labels) || s.AddressType != old.AddressType ||
		!validate.SemanticEqual(s.Ports, old.Ports) ||
		!validate.SemanticEqual(s.Endpoints, old.Endpoints)
}

func defaultSlice(s *discoveryv1.EndpointSlice) {
	for i := range s.Ports {
		declare.SetDefaultPtr(&s.Ports[i].Name, "")
		declare.SetDefaultPtr(&s.Ports[i].Protocol, corev1.ProtocolTCP)
	}
}

// dropTopology clears deprecatedTopology. It held the topology field of v1beta1, and clients cannot
// set it in v1.
func dropTopology(s *discoveryv1.EndpointSlice) {
	for i := range s.Endpoints {
		s.Endpoints[i].DeprecatedTopology = nil
	}
}

// maxCellItems is the maximum number of ports and addresses in a cell.
const maxCellItems = 3

// portsText returns ports by number or else by name; "*" stands for every port.
func portsText(s *discoveryv1.EndpointSlice) string {
	ports := make([]string, len(s.Ports))
	for i, endpointPort := range s.Ports {
		switch {
		case endpointPort.Port != nil:
			ports[i] = strconv.Itoa(int(*endpointPort.Port))
		case endpointPort.Name != nil:
			ports[i] = *endpointPort.Name
		default:
			ports[i] = "*"
		}
	}
	return firstTextOrUnset(ports)
}

func endpointsText(s *discoveryv1.EndpointSlice) string {
	var all []string
	for _, e := range s.Endpoints {
		all = append(all, e.Addresses...)
	}
	return firstTextOrUnset(all)
}

func firstTextOrUnset(texts []string) string {
	if len(texts) == 0 {
		return columns.Unset
	}
	return cmp.Or(columns.First(texts, maxCellItems), columns.Unset)
}
