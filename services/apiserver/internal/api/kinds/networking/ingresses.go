package networking

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
	"binnacle/services/apiserver/internal/registry/validate"
)

// ingresses declares the namespaced kind Ingress.
func ingresses() *registry.Kind {
	return declare.Kind[networkingv1.Ingress, networkingv1.IngressList](&registry.Kind{
		Names: registry.Names{
			Group: group, Version: version, Resource: "ingresses", Kind: "Ingress",
			ShortNames: []string{"ing"}, Namespaced: true,
		},
		Parts: declare.SpecStatusAccessors(func(i *networkingv1.Ingress) (*networkingv1.IngressSpec, *networkingv1.IngressStatus) {
			return &i.Spec, &i.Status
		}),
		// The stored prefix is singular for historical reasons.
		Stored: registry.StorageForm{Prefix: "ingress"},
		Create: registry.Create{
			Validate: declare.AdaptValidation(func(fld validate.Field, i *networkingv1.Ingress) { validateIngress(fld, i, nil) }),
			Warnings: declare.AdaptResult(ingressWarnings),
		},
		Update: registry.Update{
			Order:      registry.Order{registry.MetaUpdateRules, registry.MetaRules, registry.UpdateRules},
			Generation: true,
			Validate:   declare.AdaptUpdateValidation(validateIngress),
			Warnings:   declare.AdaptUpdateResult(func(_, _ *networkingv1.Ingress) []string { return nil }),
		},
		Presentation: registry.Presentation{Columns: []registry.Column{
			columns.Name(),
			columns.Text(
				"Class",
				"The name of the IngressClass resource that should be used for additional configuration",
				func(i *networkingv1.Ingress) string {
					if i.Spec.IngressClassName == nil {
						return columns.None
					}
					return *i.Spec.IngressClassName
				},
			),
			columns.Text("Hosts", "Hosts that incoming requests are matched against before the ingress rule", hostsText),
			columns.Text("Address", "Address is a list containing ingress points for the load-balancer", addressText),
			columns.Text("Ports", "Ports of TLS configurations that open", func(i *networkingv1.Ingress) string {
				if len(i.Spec.TLS) > 0 {
					return "80, 443"
				}
				return "80"
			}),
			columns.Age(),
		}},
		Subresources: []registry.Subresource{declare.ValidatedStatus("Ingress", validateIngressStatus)},
	})
}

// maxHosts is the maximum number of hosts in a cell.
const maxHosts = 3

// hostsText returns the first hosts, and the number of rules beyond maxHosts. It returns "*" if no
// rule has a host.
func hostsText(i *networkingv1.Ingress) string {
	var hosts []string
	more := false
	for _, rule := range i.Spec.Rules {
		if len(hosts) == maxHosts {
			more = true
			break
		}
		if rule.Host != "" {
			hosts = append(hosts, rule.Host)
		}
	}
	switch {
	case len(hosts) == 0:
		return "*"
	case more:
		return fmt.Sprintf("%s + %d more...", strings.Join(hosts, ","), len(i.Spec.Rules)-maxHosts)
	default:
		return strings.Join(hosts, ",")
	}
}

// addressText returns the distinct addresses of the load balancer in order.
func addressText(i *networkingv1.Ingress) string {
	var all []string
	for _, point := range i.Status.LoadBalancer.Ingress {
		if address := cmp.Or(point.IP, point.Hostname); address != "" {
			all = append(all, address)
		}
	}
	slices.Sort(all)
	return strings.Join(slices.Compact(all), ",")
}
