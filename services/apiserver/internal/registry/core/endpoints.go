package core

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
)

func endpoints() *registry.Kind {
	return &registry.Kind{
		Version: version, Resource: "endpoints", Singular: "endpoints", Kind: "Endpoints",
		ShortNames: []string{"ep"}, Namespaced: true,
		New:            declare.New[corev1.Endpoints],
		NewList:        declare.New[corev1.EndpointsList],
		Stored:         registry.Stored{Prefix: "services/endpoints"},
		Default:        declare.Do(defaultEndpoints),
		Deprecated:     "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
		CreateOnUpdate: true,
		Columns: []registry.Column{
			columns.Name(),
			columns.Text("Endpoints", columns.Doc(corev1.Endpoints{}, "subsets"), endpointsText),
			columns.Age(),
		},
	}
}

func defaultEndpoints(e *corev1.Endpoints) {
	for i := range e.Subsets {
		for j := range e.Subsets[i].Ports {
			declare.Fill(&e.Subsets[i].Ports[j].Protocol, corev1.ProtocolTCP)
		}
	}
}

// endpointsText shows the first addresses; a subset without ports counts each
// address once, other subsets each address with each port.
func endpointsText(e *corev1.Endpoints) string {
	const most = 3
	if len(e.Subsets) == 0 {
		return columns.None
	}
	var shown []string
	count := 0
	add := func(addresses []corev1.EndpointAddress, text func(ip string) string) {
		count += len(addresses)
		for i := range addresses {
			if len(shown) == most {
				return
			}
			shown = append(shown, text(addresses[i].IP))
		}
	}
	for i := range e.Subsets {
		s := &e.Subsets[i]
		if len(s.Ports) == 0 {
			add(s.Addresses, func(ip string) string { return ip })
		}
		for j := range s.Ports {
			port := strconv.Itoa(int(s.Ports[j].Port))
			add(s.Addresses, func(ip string) string { return net.JoinHostPort(ip, port) })
		}
	}
	text := strings.Join(shown, ",")
	if count > len(shown) {
		text += fmt.Sprintf(" + %d more...", count-len(shown))
	}
	return text
}
