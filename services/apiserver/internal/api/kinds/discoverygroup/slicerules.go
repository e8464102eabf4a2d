package discoverygroup

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"binnacle/services/apiserver/internal/registry/validate"
)

// Limits of slices.
const (
	maxPorts     = 20000
	maxEndpoints = 1000
	maxAddresses = 100
	maxLabels    = 16
	maxHints     = 8
)

// validateSlice validates a slice. old is nil at creation. An update that leaves the endpoints
// unchanged does not validate them, because older versions accepted more.
func validateSlice(fld validate.Field, endpointSlice, old *discoveryv1.EndpointSlice) {
	validate.RequiredOneOf(fld, "addressType", endpointSlice.AddressType,
		discoveryv1.AddressTypeFQDN, discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6)
	validate.MaxItems(fld, "ports", endpointSlice.Ports, maxPorts)
	if len(endpointSlice.Ports) <= maxPorts {
		names := validate.Set[string]{}
		validate.Each(
			fld,
			"ports",
			endpointSlice.Ports,
			func(fld validate.Field, p *discoveryv1.EndpointPort) { validateSlicePort(fld, p, names) },
		)
	}
	errs := validate.CheckAt(fld.FieldPath(), func(fld validate.Field) { validateEndpoints(fld, endpointSlice) })
	if len(errs) > 0 && old != nil && equality.Semantic.DeepEqual(endpointSlice.Endpoints, old.Endpoints) {
		return
	}
	fld.Add(errs...)
}

func validateEndpoints(fld validate.Field, endpointSlice *discoveryv1.EndpointSlice) {
	validate.MaxItems(fld, "endpoints", endpointSlice.Endpoints, maxEndpoints)
	if len(endpointSlice.Endpoints) > maxEndpoints {
		return
	}
	validate.Each(fld, "endpoints", endpointSlice.Endpoints, func(fld validate.Field, endpoint *discoveryv1.Endpoint) {
		validateAddresses(fld, endpoint.Addresses, endpointSlice.AddressType)
		if endpoint.NodeName != nil {
			fld.CheckText("nodeName", *endpoint.NodeName, validate.DNSSubdomain)
		}
		if len(endpoint.DeprecatedTopology) > maxLabels {
			fld.Add(field.TooMany(fld.Child("deprecatedTopology").FieldPath(), len(endpoint.DeprecatedTopology), maxLabels))
		}
		fld.CheckLabels("deprecatedTopology", endpoint.DeprecatedTopology)
		if endpoint.Hostname != nil {
			fld.CheckText("hostname", *endpoint.Hostname, validate.DNSLabel)
		}
		validate.Optional(fld, "hints", endpoint.Hints, validateHints)
	})
}

func validateSlicePort(fld validate.Field, endpointPort *discoveryv1.EndpointPort, names validate.Set[string]) {
	if endpointPort.Name != nil {
		fld.CheckOptionalText("name", *endpointPort.Name, validate.DNSLabel)
		validate.Unique(fld, "name", *endpointPort.Name, names)
	}
	fld.RequireSet("protocol", endpointPort.Protocol != nil)
	validate.OptionalOneOf(fld, "protocol", endpointPort.Protocol, corev1.ProtocolSCTP, corev1.ProtocolTCP, corev1.ProtocolUDP)
	if endpointPort.AppProtocol != nil {
		fld.CheckText("appProtocol", *endpointPort.AppProtocol, validate.QualifiedName)
	}
}

// validateAddresses validates the addresses of an endpoint. IPv4 addresses may have leading zeros,
// as before strict parsing. IPv6 addresses must be canonical.
func validateAddresses(fld validate.Field, addresses []string, kind discoveryv1.AddressType) {
	if len(addresses) == 0 {
		fld.Required("addresses", "must contain at least 1 address")
		return
	}
	validate.MaxItems(fld, "addresses", addresses, maxAddresses)
	if len(addresses) > maxAddresses {
		return
	}
	ip := func(path validate.Field, address string, rule func(name, value string), is func(string) bool, detail string) {
		before := fld.ErrorCount()
		rule("", address)
		if fld.ErrorCount() > before {
			return
		}
		if !is(address) {
			fld.Invalid("addresses", address, detail)
		}
		path.CheckNonSpecialIP("", address)
	}
	validate.Each(fld, "addresses", addresses, func(path validate.Field, address *string) {
		switch kind {
		case discoveryv1.AddressTypeIPv4:
			legacy := func(name, value string) { path.CheckIP(name, value) }
			ip(path, *address, legacy, netutils.IsIPv4String, "must be an IPv4 address")
		case discoveryv1.AddressTypeIPv6:
			ip(path, *address, path.CheckCanonicalIP, netutils.IsIPv6String, "must be an IPv6 address")
		case discoveryv1.AddressTypeFQDN:
			path.Add(validation.IsFullyQualifiedDomainName(path.FieldPath(), *address)...)
		}
	})
}

func validateHints(fld validate.Field, hints *discoveryv1.EndpointHints) {
	validate.MaxItems(fld, "forZones", hints.ForZones, maxHints)
	if len(hints.ForZones) <= maxHints {
		zones := validate.Set[string]{}
		validate.Each(fld, "forZones", hints.ForZones, func(fld validate.Field, z *discoveryv1.ForZone) {
			validate.Unique(fld, "name", z.Name, zones)
			fld.CheckText("name", z.Name, validate.LabelValue)
		})
	}
	validate.MaxItems(fld, "forNodes", hints.ForNodes, maxHints)
	if len(hints.ForNodes) <= maxHints {
		nodes := validate.Set[string]{}
		validate.Each(fld, "forNodes", hints.ForNodes, func(fld validate.Field, n *discoveryv1.ForNode) {
			validate.Unique(fld, "name", n.Name, nodes)
			fld.CheckText("name", n.Name, validate.DNSSubdomain)
		})
	}
}

// dropNodeHints clears the field of a disabled gate, unless the stored slice has it.
func dropNodeHints(endpointSlice, old *discoveryv1.EndpointSlice) {
	hinted := func(e discoveryv1.Endpoint) bool { return e.Hints != nil && len(e.Hints.ForNodes) > 0 }
	if old != nil && slices.ContainsFunc(old.Endpoints, hinted) {
		return
	}
	for i := range endpointSlice.Endpoints {
		if h := endpointSlice.Endpoints[i].Hints; h != nil {
			h.ForNodes = nil
		}
	}
}

func sliceWarnings(s *discoveryv1.EndpointSlice) []string {
	warnings := addressWarnings(s)
	if s.AddressType == discoveryv1.AddressTypeFQDN {
		return append([]string{"spec.addressType: FQDN endpoints are deprecated"}, warnings...)
	}
	return warnings
}

// addressWarnings returns a warning for each address that is not canonical. Slices of
// the endpoint slice controllers have none, because the controllers normalize addresses.
func addressWarnings(endpointSlice *discoveryv1.EndpointSlice) (out []string) {
	switch endpointSlice.Labels[discoveryv1.LabelManagedBy] {
	case "endpointslice-controller.k8s.io", "endpointslicemirroring-controller.k8s.io":
		return nil
	}
	for i := range endpointSlice.Endpoints {
		path := field.NewPath("endpoints").Index(i).Child("addresses")
		for j, address := range endpointSlice.Endpoints[i].Addresses {
			out = append(out, validate.IPWarnings(path.Index(j), address)...)
		}
	}
	return out
}
