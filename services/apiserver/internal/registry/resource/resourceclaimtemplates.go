package resource

import (
	resourcev1beta1 "k8s.io/api/resource/v1beta1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
)

func resourceClaimTemplates() *registry.Kind {
	return &registry.Kind{
		Group: group, Version: stored, Resource: "resourceclaimtemplates", Singular: "resourceclaimtemplate", Kind: "ResourceClaimTemplate",
		Namespaced:    true,
		New:           declare.New[resourcev1beta1.ResourceClaimTemplate],
		NewList:       declare.New[resourcev1beta1.ResourceClaimTemplateList],
		Stored:        registry.Stored{Prefix: "resourceclaimtemplates"},
		Default:       declare.Do(func(t *resourcev1beta1.ResourceClaimTemplate) { defaultClaim(&t.Spec.Spec) }),
		ReturnDeleted: true,
		ValidateUpdate: declare.GetChange(func(t, old *resourcev1beta1.ResourceClaimTemplate) field.ErrorList {
			return immutableSpec(t.Spec, old.Spec)
		}),
		Columns: []registry.Column{columns.Name(), columns.Age()},
	}
}

func resourceClaimTemplatesBeta2() *registry.Kind {
	k := resourceClaimTemplates()
	k.Version = newest
	k.New, k.NewList = declare.New[resourcev1beta2.ResourceClaimTemplate], declare.New[resourcev1beta2.ResourceClaimTemplateList]
	k.Stored = storedAs[resourcev1beta1.ResourceClaimTemplate, resourcev1beta2.ResourceClaimTemplate]("resourceclaimtemplates",
		each(lift("exactly"), "spec", "spec", "devices", "requests"), each(exactly, "spec", "spec", "devices", "requests"))
	k.Default = declare.Do(func(t *resourcev1beta2.ResourceClaimTemplate) { defaultClaimBeta2(&t.Spec.Spec) })
	k.ValidateUpdate = declare.GetChange(func(t, old *resourcev1beta2.ResourceClaimTemplate) field.ErrorList {
		return immutableSpec(t.Spec, old.Spec)
	})
	return k
}
