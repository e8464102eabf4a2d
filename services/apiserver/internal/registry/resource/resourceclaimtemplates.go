package resource

import (
	resourcev1beta1 "k8s.io/api/resource/v1beta1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
)

func resourceClaimTemplates() *registry.Kind {
	return &registry.Kind{
		Group: group, Version: version, Resource: "resourceclaimtemplates", Singular: "resourceclaimtemplate", Kind: "ResourceClaimTemplate",
		Namespaced:    true,
		New:           declare.New[resourcev1beta1.ResourceClaimTemplate],
		NewList:       declare.New[resourcev1beta1.ResourceClaimTemplateList],
		Stored:        registry.Stored{Prefix: "resourceclaimtemplates"},
		Default:       declare.Do(func(t *resourcev1beta1.ResourceClaimTemplate) { defaultClaim(&t.Spec.Spec) }),
		ReturnDeleted: true,
		ValidateUpdate: declare.GetChange(func(t, old *resourcev1beta1.ResourceClaimTemplate) field.ErrorList {
			if apiequality.Semantic.DeepEqual(t.Spec, old.Spec) {
				return nil
			}
			return field.ErrorList{field.Invalid(field.NewPath("spec"), t.Spec, "field is immutable")}
		}),
		Columns: []registry.Column{columns.Name(), columns.Age()},
	}
}
