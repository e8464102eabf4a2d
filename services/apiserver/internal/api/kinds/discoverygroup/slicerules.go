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
	mostPorts     = 20000
	mostEndpoints = 1000
	mostAddresses = 100
	mostLabels    = 16
	mostHints     = 8
)

// sliceRules validates a slice. old is nil at creation. An update that leaves the endpoints
// unchanged does not validate them, because older versions accepted more.
func sliceRules(at validate.At, s, old *discoveryv1.EndpointSlice) {
	validate.RequiredOneOf(at, "addressType", s.AddressType,
		discoveryv1.AddressTypeFQDN, discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6)
	validate.MaxItems(at, "ports", s.Ports, mostPorts)
	if len(s.Ports) <= mostPorts {
		names := validate.Set[string]{}
		validate.Each(at, "ports", s.Ports, func(at validate.At, p *discoveryv1.EndpointPort) { slicePortRules(at, p, names) })
	}
	errs := validate.CheckAt(at.Path(), func(at validate.At) { endpointRules(at, s) })
	if len(errs) > 0 && old != nil && equality.Semantic.DeepEqual(s.Endpoints, old.Endpoints) {
		return
	}
	at.Add(errs...)
}

func endpointRules(at validate.At, s *discoveryv1.EndpointSlice) {
	validate.MaxItems(at, "endpoints", s.Endpoints, mostEndpoints)
	if len(s.Endpoints) > mostEndpoints {
		return
	}
	validate.Each(at, "endpoints", s.Endpoints, func(at validate.At, e *discoveryv1.Endpoint) {
		addressRules(at, e.Addresses, s.AddressType)
		if e.NodeName != nil {
			at.Text("nodeName", *e.NodeName, validate.DNSSubdomain)
		}
		if len(e.DeprecatedTopology) > mostLabels {
			at.Add(field.TooMany(at.Child("deprecatedTopology").Path(), len(e.DeprecatedTopology), mostLabels))
		}
		at.Labels("deprecatedTopology", e.DeprecatedTopology)
		if e.Hostname != nil {
			at.Text("hostname", *e.Hostname, validate.DNSLabel)
		}
		validate.Optional(at, "hints", e.Hints, hintRules)
	})
}

func slicePortRules(at validate.At, p *discoveryv1.EndpointPort, names validate.Set[string]) {
	if p.Name != nil {
		at.OptionalText("name", *p.Name, validate.DNSLabel)
		validate.Unique(at, "name", *p.Name, names)
	}
	at.Present("protocol", p.Protocol != nil)
	validate.OptionalOneOf(at, "protocol", p.Protocol, corev1.ProtocolSCTP, corev1.ProtocolTCP, corev1.ProtocolUDP)
	if p.AppProtocol != nil {
		at.Text("appProtocol", *p.AppProtocol, validate.QualifiedName)
	}
}

// addressRules validates the addresses of an endpoint. IPv4 addresses may have leading zeros, as
// before strict parsing. IPv6 addresses must be canonical.
func addressRules(at validate.At, addresses []string, kind discoveryv1.AddressType) {
	if len(addresses) == 0 {
		at.Required("addresses", "must contain at least 1 address")
		return
	}
	validate.MaxItems(at, "addresses", addresses, mostAddresses)
	if len(addresses) > mostAddresses {
		return
	}
	ip := func(place validate.At, address string, rule func(name, value string), is func(string) bool, detail string) {
		before := at.Found()
		rule("", address)
		if at.Found() > before {
			return
		}
		if !is(address) {
			at.Invalid("addresses", address, detail)
		}
		place.OrdinaryIP("", address)
	}
	validate.Each(at, "addresses", addresses, func(place validate.At, address *string) {
		switch kind {
		case discoveryv1.AddressTypeIPv4:
			legacy := func(name, value string) { place.IP(name, value) }
			ip(place, *address, legacy, netutils.IsIPv4String, "must be an IPv4 address")
		case discoveryv1.AddressTypeIPv6:
			ip(place, *address, place.CanonicalIP, netutils.IsIPv6String, "must be an IPv6 address")
		case discoveryv1.AddressTypeFQDN:
			place.Add(validation.IsFullyQualifiedDomainName(place.Path(), *address)...)
		}
	})
}

func hintRules(at validate.At, h *discoveryv1.EndpointHints) {
	validate.MaxItems(at, "forZones", h.ForZones, mostHints)
	if len(h.ForZones) <= mostHints {
		zones := validate.Set[string]{}
		validate.Each(at, "forZones", h.ForZones, func(at validate.At, z *discoveryv1.ForZone) {
			validate.Unique(at, "name", z.Name, zones)
			at.Text("name", z.Name, validate.LabelValue)
		})
	}
	validate.MaxItems(at, "forNodes", h.ForNodes, mostHints)
	if len(h.ForNodes) <= mostHints {
		nodes := validate.Set[string]{}
		validate.Each(at, "forNodes", h.ForNodes, func(at validate.At, n *discoveryv1.ForNode) {
			validate.Unique(at, "name", n.Name, nodes)
			at.Text("name", n.Name, validate.DNSSubdomain)
		})
	}
}

// dropNodeHints clears the field of a disabled gate, unless the stored slice has it.
func dropNodeHints(s, old *discoveryv1.EndpointSlice) {
	hinted := func(e discoveryv1.Endpoint) bool { return e.Hints != nil && len(e.Hints.ForNodes) > 0 }
	if old != nil && slices.ContainsFunc(old.Endpoints, hinted) {
		return
	}
	for i := range s.Endpoints {
		if h := s.Endpoints[i].Hints; h != nil {
			h.ForNodes = nil
		}
	}
}

// sliceWarnings returns the warnings for the creation of a slice.
func sliceWarnings(s *discoveryv1.EndpointSlice) []string {
	warnings := addressWarnings(s)
	if s.AddressType == discoveryv1.AddressTypeFQDN {
		return append([]string{"spec.addressType: FQDN endpoints are deprecated"}, warnings...)
	}
	return warnings
}

// addressWarnings returns a warning for each address that is not canonical. Slices of
// the endpoint slice controllers have none, because the controllers normalize addresses.
func addressWarnings(s *discoveryv1.EndpointSlice) (out []string) {
	switch s.Labels[discoveryv1.LabelManagedBy] {
	case "endpointslice-controller.k8s.io", "endpointslicemirroring-controller.k8s.io":
		return nil
	}
	for i := range s.Endpoints {
		path := field.NewPath("endpoints").Index(i).Child("addresses")
		for j, address := range s.Endpoints[i].Addresses {
			out = append(out, validate.IPWarnings(path.Index(j), address)...)
		}
	}
	return out
}
