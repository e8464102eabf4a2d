package networking

import (
	networkingv1 "k8s.io/api/networking/v1"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
)

func ingressClasses() *registry.Kind {
	return &registry.Kind{
		Group: group, Version: version, Resource: "ingressclasses", Singular: "ingressclass", Kind: "IngressClass",
		New:        declare.New[networkingv1.IngressClass],
		NewList:    declare.New[networkingv1.IngressClassList],
		Stored:     registry.Stored{Prefix: "ingressclasses"},
		Default:    declare.Do(defaultIngressClass),
		Generation: true,
		Columns: []registry.Column{
			columns.Name(),
			columns.Text("Controller", "Controller that is responsible for handling this class", func(c *networkingv1.IngressClass) string {
				return c.Spec.Controller
			}),
			columns.Text("Parameters", "A reference to a resource with additional parameters", parametersText),
			columns.Age(),
		},
	}
}

func defaultIngressClass(c *networkingv1.IngressClass) {
	if c.Spec.Parameters != nil {
		declare.FillPtr(&c.Spec.Parameters.Scope, networkingv1.IngressClassParametersReferenceScopeCluster)
	}
}

// parametersText is like "Config.example.com/name".
func parametersText(c *networkingv1.IngressClass) string {
	p := c.Spec.Parameters
	if p == nil {
		return columns.None
	}
	kind := p.Kind
	if p.APIGroup != nil {
		kind += "." + *p.APIGroup
	}
	return kind + "/" + p.Name
}
