package resource

import (
	resourcev1beta1 "k8s.io/api/resource/v1beta1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
	"binnacle/services/apiserver/internal/registry/validate"
)

// resourceClaimTemplates declares the version of ResourceClaimTemplate that is stored, v1beta1.
func resourceClaimTemplates(compile compiler, enabled gates) *registry.Kind {
	kind := declare.Kind[resourcev1beta1.ResourceClaimTemplate, resourcev1beta1.ResourceClaimTemplateList](&registry.Kind{
		Names: registry.Names{
			Group: group, Version: stored, Resource: "resourceclaimtemplates", Kind: "ResourceClaimTemplate",
			Namespaced: true,
		},
		Default: declare.Adapt(func(resourceClaimTemplate *resourcev1beta1.ResourceClaimTemplate) {
			defaultClaim(&resourceClaimTemplate.Spec.Spec)
		}),
		Delete:       registry.Delete{ReturnObject: true},
		Presentation: registry.Presentation{Columns: []registry.Column{columns.Name(), columns.Age()}},
	})
	setPreparation(kind, func(resourceClaimTemplate, old *resourcev1beta1.ResourceClaimTemplate) {
		if old == nil { // a create
			old = &resourcev1beta1.ResourceClaimTemplate{}
		}
		enabled.dropClaimFields(resourceClaimTemplate.Spec.Spec.Devices.Requests, old.Spec.Spec.Devices.Requests)
	})
	declare.SetValidation(kind, validateAsNewest[resourcev1beta1.ResourceClaimTemplate](templateToNewest, compile.validateTemplate))
	return kind
}

// templateToNewest converts the JSON of a template from v1beta1 to v1beta2. It moves the fields of
// each request, except the name, into the field "exactly":
//
//	{"name": "gpu", "deviceClassName": "a"} -> {"name": "gpu", "exactly": {"deviceClassName": "a"}}
var templateToNewest = changeEach(nestExactly, "spec", "spec", "devices", "requests")

// templateToStored converts the JSON of a template from v1beta2 to v1beta1. It reverses
// templateToNewest.
var templateToStored = changeEach(unnest("exactly"), "spec", "spec", "devices", "requests")

// validateTemplate validates a template. old is nil for a create.
func (compile compiler) validateTemplate(fld validate.Field, resourceClaimTemplate, old *resourcev1beta2.ResourceClaimTemplate) {
	spec := fld.Child("spec")
	if old != nil {
		fld.CheckImmutable("spec", resourceClaimTemplate.Spec, old.Spec)
	}
	meta := spec.Child("metadata")
	meta.CheckAnnotations("annotations", resourceClaimTemplate.Spec.Annotations)
	meta.CheckLabels("labels", resourceClaimTemplate.Spec.Labels)
	compile.validateClaimSpec(spec.Child("spec"), &resourceClaimTemplate.Spec.Spec, old != nil)
}

// resourceClaimTemplatesBeta2 declares the newest version of ResourceClaimTemplate, v1beta2. Its Go
// type differs from the stored version, so its objects are converted when they are read or written.
func resourceClaimTemplatesBeta2(compile compiler, enabled gates) *registry.Kind {
	kind := resourceClaimTemplates(compile, enabled)
	kind.Version = newest
	kind.New = declare.New[resourcev1beta2.ResourceClaimTemplate]
	kind.NewList = declare.New[resourcev1beta2.ResourceClaimTemplateList]
	kind.Stored = storageFormOf[resourcev1beta1.ResourceClaimTemplate, resourcev1beta2.ResourceClaimTemplate](
		"resourceclaimtemplates", templateToStored, templateToNewest)
	kind.Default = declare.Adapt(func(resourceClaimTemplate *resourcev1beta2.ResourceClaimTemplate) {
		defaultClaimBeta2(&resourceClaimTemplate.Spec.Spec)
	})
	setPreparation(kind, func(resourceClaimTemplate, old *resourcev1beta2.ResourceClaimTemplate) {
		if old == nil { // a create
			old = &resourcev1beta2.ResourceClaimTemplate{}
		}
		enabled.dropClaimFieldsBeta2(resourceClaimTemplate.Spec.Spec.Devices.Requests, old.Spec.Spec.Devices.Requests)
	})
	declare.SetValidation(kind, compile.validateTemplate)
	return kind
}
