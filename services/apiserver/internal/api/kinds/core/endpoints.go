package core

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/api/kinds/podspec"
	"binnacle/services/apiserver/internal/json/transcode"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
	"binnacle/services/apiserver/internal/registry/validate"
)

// endpoints declares the namespaced kind Endpoints.
func endpoints() *registry.Kind {
	return declare.Kind[corev1.Endpoints, corev1.EndpointsList](&registry.Kind{
		Names:          registry.Names{Version: version, Resource: "endpoints", Kind: "Endpoints", ShortNames: []string{"ep"}, Namespaced: true},
		Stored:         registry.StorageForm{Prefix: "services/endpoints"},
		Default:        declare.Adapt(defaultEndpoints),
		DefaultedRules: transcode.Rules(transcode.FieldsSet[corev1.EndpointPort]("protocol")),
		Create: registry.Create{
			Validate: declare.AdaptValidation(func(fld validate.Field, e *corev1.Endpoints) {
				validate.Each(fld, "subsets", e.Subsets, validateSubset)
			}),
			Warnings: declare.AdaptResult(endpointsWarnings),
		},
		Update: registry.Update{
			Order:               registry.Order{registry.MetaUpdateRules, registry.MetaRules, registry.UpdateRules},
			AllowCreateOnUpdate: true,
			Validate: declare.AdaptUpdateValidation(func(fld validate.Field, e, _ *corev1.Endpoints) {
				validate.Each(fld, "subsets", e.Subsets, validateSubset)
			}),
		},
		Presentation: registry.Presentation{
			Columns: []registry.Column{
				columns.Name(),
				columns.Text("Endpoints", columns.Doc(corev1.Endpoints{}, "subsets"), endpointsText),
				columns.Age(),
			},
		},
	})
}

func defaultEndpoints(e *corev1.Endpoints) {
	for i := range e.Subsets {
		for j := range e.Subsets[i].Ports {
			declare.SetDefault(&e.Subsets[i].Ports[j].Protocol, corev1.ProtocolTCP)
		}
	}
}

// validateSubset rejects loopback, link-local and unspecified addresses, among others, because they
// are not valid from every node.
func validateSubset(fld validate.Field, endpointSubset *corev1.EndpointSubset) {
	if len(endpointSubset.Addresses)+len(endpointSubset.NotReadyAddresses) == 0 {
		fld.Required("", "must specify `addresses` or `notReadyAddresses`")
	}
	validateAddress := func(fld validate.Field, endpointAddress *corev1.EndpointAddress) {
		fld.CheckIP("ip", endpointAddress.IP)
		fld.CheckOptionalText("hostname", endpointAddress.Hostname, validate.DNSLabel)
		if endpointAddress.NodeName != nil {
			fld.CheckText("nodeName", *endpointAddress.NodeName, validate.DNSSubdomain)
		}
		fld.CheckNonSpecialIP("ip", endpointAddress.IP)
	}
	validate.Each(fld, "addresses", endpointSubset.Addresses, validateAddress)
	validate.Each(fld, "notReadyAddresses", endpointSubset.NotReadyAddresses, validateAddress)
	validate.Each(fld, "ports", endpointSubset.Ports, func(fld validate.Field, endpointPort *corev1.EndpointPort) {
		fld.CheckOptionalText("name", endpointPort.Name, validate.DNSLabel)
		fld.RequireSet("name", endpointPort.Name != "" || len(endpointSubset.Ports) == 1)
		fld.CheckPort("port", endpointPort.Port)
		podspec.ValidateProtocol(fld, endpointPort.Protocol)
		if endpointPort.AppProtocol != nil {
			fld.CheckText("appProtocol", *endpointPort.AppProtocol, validate.QualifiedName)
		}
	})
}

// endpointsWarnings returns warnings for non-canonical addresses.
func endpointsWarnings(endpoints *corev1.Endpoints) (out []string) {
	for i := range endpoints.Subsets {
		path := field.NewPath("subsets").Index(i)
		for j := range endpoints.Subsets[i].Addresses {
			out = append(out, validate.IPWarnings(path.Child("addresses").Index(j).Child("ip"), endpoints.Subsets[i].Addresses[j].IP)...)
		}
		for j := range endpoints.Subsets[i].NotReadyAddresses {
			out = append(
				out,
				validate.IPWarnings(path.Child("notReadyAddresses").Index(j).Child("ip"), endpoints.Subsets[i].NotReadyAddresses[j].IP)...)
		}
	}
	return out
}

// endpointsText returns the first addresses and how many more there are. A subset without ports
// counts each address once, other subsets count each address with each port.
func endpointsText(endpoints *corev1.Endpoints) string {
	const maximum = 3
	if len(endpoints.Subsets) == 0 {
		return columns.None
	}
	var shown []string
	count := 0
	add := func(addresses []corev1.EndpointAddress, text func(ip string) string) {
		count += len(addresses)
		for i := range addresses {
			if len(shown) == maximum {
				return
			}
			shown = append(shown, text(addresses[i].IP))
		}
	}
	for i := range endpoints.Subsets {
		endpointSubset := &endpoints.Subsets[i]
		if len(endpointSubset.Ports) == 0 {
			add(endpointSubset.Addresses, func(ip string) string { return ip })
		}
		for j := range endpointSubset.Ports {
			port := strconv.Itoa(int(endpointSubset.Ports[j].Port))
			add(endpointSubset.Addresses, func(ip string) string { return net.JoinHostPort(ip, port) })
		}
	}
	text := strings.Join(shown, ",")
	if count > len(shown) {
		text += fmt.Sprintf(" + %d more...", count-len(shown))
	}
	return text
}
