package v1beta1

import (
	"k8s.io/utils/ptr"

	"binnacle/libs/semantic"
	v1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
	"binnacle/services/apiserver/internal/registry/apis/apitype"
)

// FromV1 returns the stored form of a definition. The result shares memory with the argument.
func FromV1(in *v1.CustomResourceDefinition) *CustomResourceDefinition {
	spec := &in.Spec
	out := &CustomResourceDefinition{
		TypeMeta:   in.TypeMeta,
		ObjectMeta: in.ObjectMeta,
		Status:     in.Status,
		Spec: CustomResourceDefinitionSpec{
			Group:                 spec.Group,
			Names:                 spec.Names,
			Scope:                 spec.Scope,
			PreserveUnknownFields: ptr.To(spec.PreserveUnknownFields),
		},
	}
	for i := range spec.Versions {
		version := &spec.Versions[i]
		out.Spec.Versions = append(out.Spec.Versions, CustomResourceDefinitionVersion{
			Name:                     version.Name,
			Served:                   version.Served,
			Storage:                  version.Storage,
			Deprecated:               version.Deprecated,
			DeprecationWarning:       version.DeprecationWarning,
			Schema:                   (*CustomResourceValidation)(version.Schema),
			Subresources:             version.Subresources,
			SelectableFields:         version.SelectableFields,
			AdditionalPrinterColumns: columnsFromV1(version.AdditionalPrinterColumns),
		})
	}
	if c := spec.Conversion; c != nil {
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
func shareEqualValues(spec *CustomResourceDefinitionSpec) {
	if len(spec.Versions) == 0 {
		return
	}
	spec.Version = spec.Versions[0].Name
	first := spec.Versions[0]
	equalSchema := true
	equalSubresources := true
	equalColumns := true
	equalFields := true
	for i := range spec.Versions {
		version := &spec.Versions[i]
		equalSchema = equalSchema && semantic.Equal(version.Schema, first.Schema)
		equalSubresources = equalSubresources && semantic.Equal(version.Subresources, first.Subresources)
		equalColumns = equalColumns && semantic.Equal(version.AdditionalPrinterColumns, first.AdditionalPrinterColumns)
		equalFields = equalFields && semantic.Equal(version.SelectableFields, first.SelectableFields)
	}
	for i := range spec.Versions {
		version := &spec.Versions[i]
		if equalSchema {
			spec.Validation = first.Schema
			version.Schema = nil
		}
		if equalSubresources {
			spec.Subresources = first.Subresources
			version.Subresources = nil
		}
		if equalColumns {
			spec.AdditionalPrinterColumns = first.AdditionalPrinterColumns
			version.AdditionalPrinterColumns = nil
		}
		if equalFields {
			spec.SelectableFields = first.SelectableFields
			version.SelectableFields = nil
		}
	}
}

// ToV1 returns the served form of a definition. The result shares memory with the argument, but its
// versions share none with each other.
func ToV1(in *CustomResourceDefinition) *v1.CustomResourceDefinition {
	spec := &in.Spec
	out := &v1.CustomResourceDefinition{
		TypeMeta:   in.TypeMeta,
		ObjectMeta: in.ObjectMeta,
		Status:     in.Status,
		Spec: v1.CustomResourceDefinitionSpec{
			Group:                 spec.Group,
			Names:                 spec.Names,
			Scope:                 spec.Scope,
			PreserveUnknownFields: ptr.Deref(spec.PreserveUnknownFields, true),
		},
	}
	if out.Spec.Scope == "" {
		out.Spec.Scope = v1.NamespaceScoped
	}
	versions := spec.Versions
	if len(versions) == 0 && spec.Version != "" {
		versions = []CustomResourceDefinitionVersion{{Name: spec.Version, Served: true, Storage: true}}
	}
	for i := range versions {
		out.Spec.Versions = append(out.Spec.Versions, versionToV1(spec, &versions[i]))
	}
	if spec.Conversion != nil {
		out.Spec.Conversion = conversionToV1(spec.Conversion)
	}
	return out
}

// versionToV1 returns the served form of a version, with the values at the top level of spec that it
// shares.
func versionToV1(spec *CustomResourceDefinitionSpec, version *CustomResourceDefinitionVersion) v1.CustomResourceDefinitionVersion {
	out := v1.CustomResourceDefinitionVersion{
		Name:                     version.Name,
		Served:                   version.Served,
		Storage:                  version.Storage,
		Deprecated:               version.Deprecated,
		DeprecationWarning:       version.DeprecationWarning,
		Schema:                   (*v1.CustomResourceValidation)(version.Schema),
		Subresources:             version.Subresources,
		SelectableFields:         version.SelectableFields,
		AdditionalPrinterColumns: columnsToV1(version.AdditionalPrinterColumns),
	}
	if spec.Validation != nil {
		out.Schema = apitype.DeepCopy((*v1.CustomResourceValidation)(spec.Validation))
	}
	if spec.Subresources != nil {
		out.Subresources = apitype.DeepCopy(spec.Subresources)
	}
	if spec.AdditionalPrinterColumns != nil {
		out.AdditionalPrinterColumns = columnsToV1(spec.AdditionalPrinterColumns)
	}
	if spec.SelectableFields != nil {
		out.SelectableFields = append([]v1.SelectableField(nil), spec.SelectableFields...)
	}
	return out
}

// conversionToV1 returns the served form of a conversion.
func conversionToV1(conversion *CustomResourceConversion) *v1.CustomResourceConversion {
	out := &v1.CustomResourceConversion{Strategy: conversion.Strategy}
	if conversion.WebhookClientConfig != nil || conversion.ConversionReviewVersions != nil {
		out.Webhook = &v1.WebhookConversion{
			ClientConfig:             conversion.WebhookClientConfig,
			ConversionReviewVersions: conversion.ConversionReviewVersions,
		}
	}
	if conversion.Strategy == v1.WebhookConverter && len(conversion.ConversionReviewVersions) == 0 {
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
