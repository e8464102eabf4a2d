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
func sliceRules(fldPath validate.Path, s, old *discoveryv1.EndpointSlice) {
	validate.RequiredOneOf(fldPath, "addressType", s.AddressType,
		discoveryv1.AddressTypeFQDN, discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6)
	validate.MaxItems(fldPath, "ports", s.Ports, mostPorts)
	if len(s.Ports) <= mostPorts {
		names := validate.Set[string]{}
		validate.Each(fldPath, "ports", s.Ports, func(fldPath validate.Path, p *discoveryv1.EndpointPort) { slicePortRules(fldPath, p, names) })
	}
	errs := validate.CheckAt(fldPath.FieldPath(), func(fldPath validate.Path) { endpointRules(fldPath, s) })
	if len(errs) > 0 && old != nil && equality.Semantic.DeepEqual(s.Endpoints, old.Endpoints) {
		return
	}
	fldPath.Add(errs...)
}

func endpointRules(fldPath validate.Path, s *discoveryv1.EndpointSlice) {
	validate.MaxItems(fldPath, "endpoints", s.Endpoints, mostEndpoints)
	if len(s.Endpoints) > mostEndpoints {
		return
	}
	validate.Each(fldPath, "endpoints", s.Endpoints, func(fldPath validate.Path, e *discoveryv1.Endpoint) {
		addressRules(fldPath, e.Addresses, s.AddressType)
		if e.NodeName != nil {
			fldPath.Text("nodeName", *e.NodeName, validate.DNSSubdomain)
		}
		if len(e.DeprecatedTopology) > mostLabels {
			fldPath.Add(field.TooMany(fldPath.Child("deprecatedTopology").FieldPath(), len(e.DeprecatedTopology), mostLabels))
		}
		fldPath.Labels("deprecatedTopology", e.DeprecatedTopology)
		if e.Hostname != nil {
			fldPath.Text("hostname", *e.Hostname, validate.DNSLabel)
		}
		validate.Optional(fldPath, "hints", e.Hints, hintRules)
	})
}

func slicePortRules(fldPath validate.Path, p *discoveryv1.EndpointPort, names validate.Set[string]) {
	if p.Name != nil {
		fldPath.OptionalText("name", *p.Name, validate.DNSLabel)
		validate.Unique(fldPath, "name", *p.Name, names)
	}
	fldPath.Present("protocol", p.Protocol != nil)
	validate.OptionalOneOf(fldPath, "protocol", p.Protocol, corev1.ProtocolSCTP, corev1.ProtocolTCP, corev1.ProtocolUDP)
	if p.AppProtocol != nil {
		fldPath.Text("appProtocol", *p.AppProtocol, validate.QualifiedName)
	}
}

// addressRules validates the addresses of an endpoint. IPv4 addresses may have leading zeros, as
// before strict parsing. IPv6 addresses must be canonical.
func addressRules(fldPath validate.Path, addresses []string, kind discoveryv1.AddressType) {
	if len(addresses) == 0 {
		fldPath.Required("addresses", "must contain at least 1 address")
		return
	}
	validate.MaxItems(fldPath, "addresses", addresses, mostAddresses)
	if len(addresses) > mostAddresses {
		return
	}
	ip := func(path validate.Path, address string, rule func(name, value string), is func(string) bool, detail string) {
		before := fldPath.ErrorCount()
		rule("", address)
		if fldPath.ErrorCount() > before {
			return
		}
		if !is(address) {
			fldPath.Invalid("addresses", address, detail)
		}
		path.NonSpecialIP("", address)
	}
	validate.Each(fldPath, "addresses", addresses, func(path validate.Path, address *string) {
		switch kind {
		case discoveryv1.AddressTypeIPv4:
			legacy := func(name, value string) { path.IP(name, value) }
			ip(path, *address, legacy, netutils.IsIPv4String, "must be an IPv4 address")
		case discoveryv1.AddressTypeIPv6:
			ip(path, *address, path.CanonicalIP, netutils.IsIPv6String, "must be an IPv6 address")
		case discoveryv1.AddressTypeFQDN:
			path.Add(validation.IsFullyQualifiedDomainName(path.FieldPath(), *address)...)
		}
	})
}

func hintRules(fldPath validate.Path, h *discoveryv1.EndpointHints) {
	validate.MaxItems(fldPath, "forZones", h.ForZones, mostHints)
	if len(h.ForZones) <= mostHints {
		zones := validate.Set[string]{}
		validate.Each(fldPath, "forZones", h.ForZones, func(fldPath validate.Path, z *discoveryv1.ForZone) {
			validate.Unique(fldPath, "name", z.Name, zones)
			fldPath.Text("name", z.Name, validate.LabelValue)
		})
	}
	validate.MaxItems(fldPath, "forNodes", h.ForNodes, mostHints)
	if len(h.ForNodes) <= mostHints {
		nodes := validate.Set[string]{}
		validate.Each(fldPath, "forNodes", h.ForNodes, func(fldPath validate.Path, n *discoveryv1.ForNode) {
			validate.Unique(fldPath, "name", n.Name, nodes)
			fldPath.Text("name", n.Name, validate.DNSSubdomain)
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
