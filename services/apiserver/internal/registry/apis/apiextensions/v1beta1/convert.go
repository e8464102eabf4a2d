package v1beta1

import (
	"k8s.io/utils/ptr"

	"binnacle/libs/semantic"
	v1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
	"binnacle/services/apiserver/internal/registry/apis/apitype"
)

// FromV1 returns the stored form of a definition. The result shares memory with the argument.
func FromV1(in *v1.CustomResourceDefinition) *CustomResourceDefinition {
	s := &in.Spec
	out := &CustomResourceDefinition{
		TypeMeta:   in.TypeMeta,
		ObjectMeta: in.ObjectMeta,
		Status:     in.Status,
		Spec: CustomResourceDefinitionSpec{
			Group:                 s.Group,
			Names:                 s.Names,
			Scope:                 s.Scope,
			PreserveUnknownFields: ptr.To(s.PreserveUnknownFields),
		},
	}
	for i := range s.Versions {
		v := &s.Versions[i]
		out.Spec.Versions = append(out.Spec.Versions, CustomResourceDefinitionVersion{
			Name:                     v.Name,
			Served:                   v.Served,
			Storage:                  v.Storage,
			Deprecated:               v.Deprecated,
			DeprecationWarning:       v.DeprecationWarning,
			Schema:                   (*CustomResourceValidation)(v.Schema),
			Subresources:             v.Subresources,
			SelectableFields:         v.SelectableFields,
			AdditionalPrinterColumns: columnsFromV1(v.AdditionalPrinterColumns),
		})
	}
	if c := s.Conversion; c != nil {
		out.Spec.Conversion = &CustomResourceConversion{Strategy: c.Strategy}
		if c.Webhook != nil {
			out.Spec.Conversion.WebhookClientConfig = c.Webhook.ClientConfig
			out.Spec.Conversion.ConversionReviewVersions = c.Webhook.ConversionReviewVersions
		}
	}
	shareEqualValues(&out.Spec)
	return out
}

// shareEqualValues moves values that are equal in all versions to the top level.
func shareEqualValues(s *CustomResourceDefinitionSpec) {
	if len(s.Versions) == 0 {
		return
	}
	s.Version = s.Versions[0].Name
	first := s.Versions[0]
	equalSchema := true
	equalSubresources := true
	equalColumns := true
	equalFields := true
	for i := range s.Versions {
		v := &s.Versions[i]
		equalSchema = equalSchema && semantic.Equal(v.Schema, first.Schema)
		equalSubresources = equalSubresources && semantic.Equal(v.Subresources, first.Subresources)
		equalColumns = equalColumns && semantic.Equal(v.AdditionalPrinterColumns, first.AdditionalPrinterColumns)
		equalFields = equalFields && semantic.Equal(v.SelectableFields, first.SelectableFields)
	}
	for i := range s.Versions {
		v := &s.Versions[i]
		if equalSchema {
			s.Validation = first.Schema
			v.Schema = nil
		}
		if equalSubresources {
			s.Subresources = first.Subresources
			v.Subresources = nil
		}
		if equalColumns {
			s.AdditionalPrinterColumns = first.AdditionalPrinterColumns
			v.AdditionalPrinterColumns = nil
		}
		if equalFields {
			s.SelectableFields = first.SelectableFields
			v.SelectableFields = nil
		}
	}
}

// ToV1 returns the served form of a definition. The result shares memory with the argument, but its
// versions share none with each other.
func ToV1(in *CustomResourceDefinition) *v1.CustomResourceDefinition {
	s := &in.Spec
	out := &v1.CustomResourceDefinition{
		TypeMeta:   in.TypeMeta,
		ObjectMeta: in.ObjectMeta,
		Status:     in.Status,
		Spec: v1.CustomResourceDefinitionSpec{
			Group:                 s.Group,
			Names:                 s.Names,
			Scope:                 s.Scope,
			PreserveUnknownFields: ptr.Deref(s.PreserveUnknownFields, true),
		},
	}
	if out.Spec.Scope == "" {
		out.Spec.Scope = v1.NamespaceScoped
	}
	versions := s.Versions
	if len(versions) == 0 && s.Version != "" {
		versions = []CustomResourceDefinitionVersion{{Name: s.Version, Served: true, Storage: true}}
	}
	for i := range versions {
		out.Spec.Versions = append(out.Spec.Versions, versionToV1(s, &versions[i]))
	}
	if s.Conversion != nil {
		out.Spec.Conversion = conversionToV1(s.Conversion)
	}
	return out
}

// versionToV1 returns the served form of a version, with the values at the top level of s that it
// shares.
func versionToV1(s *CustomResourceDefinitionSpec, v *CustomResourceDefinitionVersion) v1.CustomResourceDefinitionVersion {
	out := v1.CustomResourceDefinitionVersion{
		Name:                     v.Name,
		Served:                   v.Served,
		Storage:                  v.Storage,
		Deprecated:               v.Deprecated,
		DeprecationWarning:       v.DeprecationWarning,
		Schema:                   (*v1.CustomResourceValidation)(v.Schema),
		Subresources:             v.Subresources,
		SelectableFields:         v.SelectableFields,
		AdditionalPrinterColumns: columnsToV1(v.AdditionalPrinterColumns),
	}
	if s.Validation != nil {
		out.Schema = apitype.DeepCopy((*v1.CustomResourceValidation)(s.Validation))
	}
	if s.Subresources != nil {
		out.Subresources = apitype.DeepCopy(s.Subresources)
	}
	if s.AdditionalPrinterColumns != nil {
		out.AdditionalPrinterColumns = columnsToV1(s.AdditionalPrinterColumns)
	}
	if s.SelectableFields != nil {
		out.SelectableFields = append([]v1.SelectableField(nil), s.SelectableFields...)
	}
	return out
}

// conversionToV1 returns the served form of a conversion.
func conversionToV1(c *CustomResourceConversion) *v1.CustomResourceConversion {
	out := &v1.CustomResourceConversion{Strategy: c.Strategy}
	if c.WebhookClientConfig != nil || c.ConversionReviewVersions != nil {
		out.Webhook = &v1.WebhookConversion{
			ClientConfig:             c.WebhookClientConfig,
			ConversionReviewVersions: c.ConversionReviewVersions,
		}
	}
	if c.Strategy == v1.WebhookConverter && len(c.ConversionReviewVersions) == 0 {
		// The default is the version of this group version.
		if out.Webhook == nil {
			out.Webhook = &v1.WebhookConversion{}
		}
		out.Webhook.ConversionReviewVersions = []string{SchemeGroupVersion.Version}
	}
	return out
}

// columnsFromV1 returns the stored form of columns.
func columnsFromV1(in []v1.CustomResourceColumnDefinition) []CustomResourceColumnDefinition {
	var out []CustomResourceColumnDefinition
	for _, c := range in {
		out = append(out, CustomResourceColumnDefinition(c))
	}
	return out
}

// columnsToV1 returns the served form of columns.
func columnsToV1(in []CustomResourceColumnDefinition) []v1.CustomResourceColumnDefinition {
	var out []v1.CustomResourceColumnDefinition
	for _, c := range in {
		out = append(out, v1.CustomResourceColumnDefinition(c))
	}
	return out
}
