package networking

import (
	networkingv1 "k8s.io/api/networking/v1"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
	"binnacle/services/apiserver/internal/registry/validate"
)

// ingressClasses declares the cluster-scoped kind IngressClass.
func ingressClasses() *registry.Kind {
	return declare.Kind[networkingv1.IngressClass, networkingv1.IngressClassList](&registry.Kind{
		Names:   registry.Names{Group: group, Version: version, Resource: "ingressclasses", Kind: "IngressClass"},
		Parts:   declare.SpecAccessors(func(i *networkingv1.IngressClass) *networkingv1.IngressClassSpec { return &i.Spec }),
		Default: declare.Adapt(defaultIngressClass),
		Create:  registry.Create{Validate: declare.AdaptValidation(validateIngressClass)},
		Update: registry.Update{
			Order:      registry.Order{registry.MetaUpdateRules, registry.UpdateRules, registry.MetaRules},
			Generation: true,
			Validate: declare.AdaptUpdateValidation(func(fld validate.Field, c, old *networkingv1.IngressClass) {
				fld.Child("spec").CheckImmutable("controller", c.Spec.Controller, old.Spec.Controller)
				validateIngressClass(fld, c)
			}),
		},
		Presentation: registry.Presentation{Columns: []registry.Column{
			columns.Name(),
			columns.Text(
				"Controller",
				"Controller that is responsible for handling this class",
				func(c *networkingv1.IngressClass) string {
					return c.Spec.Controller
				},
			),
			columns.Text("Parameters", "A reference to a resource with additional parameters", parametersText),
			columns.Age(),
		}},
	})
}

func defaultIngressClass(c *networkingv1.IngressClass) {
	if c.Spec.Parameters != nil {
		declare.SetDefaultPtr(&c.Spec.Parameters.Scope, networkingv1.IngressClassParametersReferenceScopeCluster)
	}
}

// maxControllerName is the maximum length of a controller's name in bytes.
const maxControllerName = 250

func validateIngressClass(fld validate.Field, ingressClass *networkingv1.IngressClass) {
	const cluster, namespace = networkingv1.IngressClassParametersReferenceScopeCluster, networkingv1.IngressClassParametersReferenceScopeNamespace
	spec := fld.Child("spec")
	spec.CheckMaxBytes("controller", ingressClass.Spec.Controller, maxControllerName)
	spec.CheckDomainPath("controller", ingressClass.Spec.Controller)
	validate.Optional(
		spec,
		"parameters",
		ingressClass.Spec.Parameters,
		func(fld validate.Field, p *networkingv1.IngressClassParametersReference) {
			validateParameterReference(fld, p.APIGroup, p.Kind, p.Name)
			fld.RequireSet("scope", p.Scope != nil)
			switch scope := declare.Deref(p.Scope); {
			case p.Scope == nil && p.Namespace == nil:
			case scope == namespace && p.Namespace == nil:
				fld.Required("namespace", "`parameters.scope` is set to 'Namespace'")
			case scope == namespace:
				fld.CheckText("namespace", *p.Namespace, validate.DNSLabel)
			case scope == cluster:
				fld.ForbidSet("namespace", p.Namespace != nil, "`parameters.scope` is set to 'Cluster'")
			default:
				validate.OneOf(fld, "scope", scope, cluster, namespace)
			}
		},
	)
}

// parametersText returns a text such as "Config.example.com/name".
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
