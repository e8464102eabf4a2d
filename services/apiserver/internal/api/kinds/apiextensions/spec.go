package apiextensions

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	v1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
	"binnacle/services/apiserver/internal/registry/validate"
)

// requireFormat requires a text of a format and reports all its errors as one.
func requireFormat(fld validate.Field, name, value, before string, format validate.Format) {
	text := value
	if before != "" {
		text = strings.ToLower(value)
	}
	if errs := format(text); len(errs) > 0 {
		fld.Invalid(name, value, before+strings.Join(errs, ","))
	}
}

// validateSpec validates the spec, except for the violations in tolerated.
func (c *checker) validateSpec(fld validate.Field, spec *v1.CustomResourceDefinitionSpec, tolerated tolerance) {
	view := viewOf(spec)
	switch {
	case spec.Group == "":
		fld.Required("group", "")
	case len(validate.DNSSubdomain(spec.Group)) > 0:
		requireFormat(fld, "group", spec.Group, "", validate.DNSSubdomain)
	case !strings.Contains(spec.Group, "."):
		fld.Invalid("group", spec.Group, "should be a domain with at least one dot")
	}
	validate.RequiredOneOf(fld, "scope", spec.Scope, v1.ClusterScoped, v1.NamespaceScoped)
	mustBeStructural := requireSchemas(fld, view, tolerated)
	c.validateVersions(fld, view, tolerated, mustBeStructural)
	names := fld.Child("names")
	names.RequireSet("plural", spec.Names.Plural != "")
	names.RequireSet("singular", spec.Names.Singular != "")
	names.RequireSet("kind", spec.Names.Kind != "")
	names.RequireSet("listKind", spec.Names.ListKind != "")
	validateNames(names, &spec.Names)
	c.validateSharedParts(fld, view, tolerated, mustBeStructural)
	if spec.Conversion != nil {
		if spec.Conversion.Strategy != v1.NoneConverter && spec.PreserveUnknownFields {
			fld.Invalid("conversion.strategy", spec.Conversion.Strategy, "must be None if spec.preserveUnknownFields is true")
		}
		validateConversion(fld.Child("conversion"), spec.Conversion, tolerated)
	}
}

// requireSchemas requires a schema in every version and reports whether schemas must be structural.
func requireSchemas(fld validate.Field, v *view, tolerated tolerance) (mustBeStructural bool) {
	if schemaOf(v.schema) == nil {
		missing := "schemas are required"
		if tolerated.allowsMissingSchemas() {
			missing = "because otherwise all fields are pruned"
		}
		for i, version := range v.versions {
			optional := tolerated.allowsMissingSchemas() && (v.PreserveUnknownFields || !version.Served)
			if schemaOf(version.Schema) == nil && !optional {
				fld.Index("versions", i).Required("schema.openAPIV3Schema", missing)
			}
		}
	}
	if !v.PreserveUnknownFields {
		return true
	}
	if anySchema(v.CustomResourceDefinitionSpec, func(s *v1.JSONSchemaProps) bool { return s.Default != nil }) {
		fld.Invalid("preserveUnknownFields", true, "must be false in order to use defaults in the schema")
		return true
	}
	return anySchema(v.CustomResourceDefinitionSpec, hasExtensions) || !tolerated.allowsNonStructural()
}

func hasExtensions(s *v1.JSONSchemaProps) bool {
	return s.XEmbeddedResource || s.XPreserveUnknownFields != nil || s.XIntOrString || len(s.XListMapKeys) > 0 ||
		s.XListType != nil ||
		len(s.XValidations) > 0
}

// validateVersions validates each version, and all versions together.
func (c *checker) validateVersions(fld validate.Field, v *view, tolerated tolerance, mustBeStructural bool) {
	names := validate.Set[string]{}
	twice := false
	storage := 0
	for i := range v.versions {
		version := &v.versions[i]
		fld := fld.Index("versions", i)
		if version.Storage {
			storage++
		}
		twice = !names.Add(version.Name) || twice
		requireFormat(fld, "name", version.Name, "", validate.DNS1035Label)
		validateDeprecationWarning(fld, version)
		s := schemaRules{
			checker:    c,
			tolerance:  tolerated,
			structural: mustBeStructural,
			status:     v.hasStatus(version.Name),
			version:    version.Name,
		}
		s.check(fld.Child("schema"), version.Schema, v.Versions[i].Schema)
		validateSubresources(fld.Child("subresources"), version.Subresources)
		validateColumns(fld, version.AdditionalPrinterColumns)
		if len(version.SelectableFields) > 0 {
			const misplaced = "selectableFields may only be set when version.schema.openAPIV3Schema is not included"
			validateSelectableFields(fld, version.SelectableFields, schemaOf(version.Schema), misplaced)
		}
	}
	all := v.versions
	if twice {
		fld.Invalid("versions", all, "must contain unique version names")
	}
	if storage != 1 {
		fld.Invalid("versions", all, "must have exactly one version marked as storage version")
	}
	if len(v.versions) > 0 && v.versions[0].Name != "" {
		requireFormat(fld, "version", v.versions[0].Name, "", validate.DNS1035Label)
	}
}

// validateSharedParts validates the parts that all versions share.
func (c *checker) validateSharedParts(fld validate.Field, v *view, t tolerance, mustBeStructural bool) {
	s := schemaRules{
		checker:    c,
		tolerance:  t,
		structural: mustBeStructural,
		status: slices.ContainsFunc(v.Versions, func(v v1.CustomResourceDefinitionVersion) bool {
			return hasStatus(v.Subresources)
		}),
	}
	if len(v.versions) > 0 {
		s.version = v.versions[0].Name
	}
	s.check(fld.Child("validation"), v.schema, v.schema)
	validateSubresources(fld.Child("subresources"), v.subresources)
	validateColumns(fld, v.columns)
	if len(v.fields) > 0 {
		schemaProps := schemaOf(v.schema)
		if schemaProps == nil && v.schema != nil {
			schemaProps = &v1.JSONSchemaProps{}
		}
		validateSelectableFields(fld, v.fields, schemaProps, "selectableFields may only be set when validations.schema is included")
	}
}

// validateDeprecationWarning requires a deprecated version for a warning, and limits its text.
func validateDeprecationWarning(fld validate.Field, v *v1.CustomResourceDefinitionVersion) {
	const name = "deprecationWarning"
	warning := v.DeprecationWarning
	switch {
	case warning == nil:
		return
	case !v.Deprecated:
		fld.Invalid(name, warning, "can only be set for deprecated versions")
		return
	}
	if len(*warning) > 256 {
		fld.Invalid(name, warning, "must be <= 256 characters long")
	}
	if *warning == "" {
		fld.Invalid(name, warning, "must not be an empty string")
	}
	if i := strings.IndexFunc(*warning, func(r rune) bool { return !unicode.IsPrint(r) }); i >= 0 {
		fld.Invalid(name, warning,
			fmt.Sprintf("must only contain printable UTF-8 characters; non-printable character found at index %d", i))
	}
	if !utf8.ValidString(*warning) {
		fld.Invalid(name, warning, "must only contain printable UTF-8 characters")
	}
}

func validateNames(fld validate.Field, names *v1.CustomResourceDefinitionNames) {
	const mixed = "may have mixed case, but should otherwise match: "
	optional := func(name, value, before string) {
		if value != "" {
			requireFormat(fld, name, value, before, validate.DNS1035Label)
		}
	}
	optional("plural", names.Plural, "")
	optional("singular", names.Singular, "")
	optional("kind", names.Kind, mixed)
	optional("listKind", names.ListKind, mixed)
	for i, short := range names.ShortNames {
		requireFormat(fld.Index("shortNames", i), "", short, "", validate.DNS1035Label)
	}
	if names.Kind != "" && names.Kind == names.ListKind {
		fld.Invalid("listKind", names.ListKind, "kind and listKind may not be the same")
	}
	for i, category := range names.Categories {
		requireFormat(fld.Index("categories", i), "", category, "", validate.DNS1035Label)
	}
}
