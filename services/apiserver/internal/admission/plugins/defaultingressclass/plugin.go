// Package defaultingressclass sets the default class on ingresses without a class.
package defaultingressclass

import (
	"context"

	networkingv1 "k8s.io/api/networking/v1"

	"binnacle/services/apiserver/internal/admission"
)

// Name is the name of the plugin in flags and configuration.
const Name = "DefaultIngressClass"

// classAnnotation is the annotation that selected the class of an ingress before there was a field
// for it.
const classAnnotation = "kubernetes.io/ingress.class"

// Classes looks up ingress classes. Default returns the name of the default class, or "" if there
// is none.
type Classes interface {
	Default(ctx context.Context) (string, error)
}

// Default returns the name of the default class among all classes, or "" if there is none.
func Default(all []*networkingv1.IngressClass) string {
	return admission.DefaultClass(all, func(c *networkingv1.IngressClass) bool {
		return c.Annotations[networkingv1.AnnotationIsDefaultIngressClass] == "true"
	})
}

// Plugin implements admission.Mutator.
type Plugin struct{ Classes Classes }

// Admit sets the default class on a new ingress.
func (p *Plugin) Admit(ctx context.Context, req *admission.Request) error {
	ingress, ok := req.Object.(*networkingv1.Ingress)
	if !ok || req.Operation != admission.Create || !req.IsObject(networkingv1.GroupName, "ingresses") {
		return nil
	}
	if _, old := ingress.Annotations[classAnnotation]; old || ingress.Spec.IngressClassName != nil {
		return nil
	}
	name, err := p.Classes.Default(ctx)
	if err != nil {
		return req.Forbidden(err)
	}
	if name != "" {
		ingress.Spec.IngressClassName = &name
	}
	return nil
}
