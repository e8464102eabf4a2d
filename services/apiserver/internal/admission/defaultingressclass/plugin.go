// Package defaultingressclass gives ingresses that name no class the default one.
package defaultingressclass

import (
	"context"

	networkingv1 "k8s.io/api/networking/v1"

	"binnacle/services/apiserver/internal/admission"
)

// Name of the plugin in flags and configuration.
const Name = "DefaultIngressClass"

// named is the annotation by which ingresses named their class before they had
// a field for it.
const named = "kubernetes.io/ingress.class"

// Classes tells the default class; "" when there is none.
type Classes interface {
	Default(ctx context.Context) (string, error)
}

// Default is the name of the one that counts among classes: the newest of those
// that are marked, of equally old ones the first by name.
func Default(all []*networkingv1.IngressClass) string {
	var found *networkingv1.IngressClass
	for _, c := range all {
		if c.Annotations[networkingv1.AnnotationIsDefaultIngressClass] != "true" {
			continue
		}
		newer := found == nil || found.CreationTimestamp.Before(&c.CreationTimestamp)
		if newer || found.CreationTimestamp.Equal(&c.CreationTimestamp) && c.Name < found.Name {
			found = c
		}
	}
	if found == nil {
		return ""
	}
	return found.Name
}

// Plugin implements admission.Mutator.
type Plugin struct{ Classes Classes }

// Admit names the default class in a new ingress.
func (p *Plugin) Admit(ctx context.Context, r *admission.Request) error {
	i, ok := r.Object.(*networkingv1.Ingress)
	if !ok || r.Operation != admission.Create || !r.IsObject(networkingv1.GroupName, "ingresses") {
		return nil
	}
	if _, old := i.Annotations[named]; old || i.Spec.IngressClassName != nil {
		return nil
	}
	name, err := p.Classes.Default(ctx)
	if err != nil {
		return r.Forbidden(err)
	}
	if name != "" {
		i.Spec.IngressClassName = &name
	}
	return nil
}
