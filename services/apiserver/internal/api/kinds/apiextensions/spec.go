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

// joined requires a text of a format and reports all its errors as one.
func joined(fldPath validate.Path, name, value, before string, format validate.Format) {
	text := value
	if before != "" {
		text = strings.ToLower(value)
	}
	if errs := format(text); len(errs) > 0 {
		fldPath.Invalid(name, value, before+strings.Join(errs, ","))
	}
}

func (c *checker) spec(fldPath validate.Path, s *v1.CustomResourceDefinitionSpec, t tolerance) {
	v := viewOf(s)
	switch {
	case s.Group == "":
		fldPath.Required("group", "")
	case len(validate.DNSSubdomain(s.Group)) > 0:
		joined(fldPath, "group", s.Group, "", validate.DNSSubdomain)
	case !strings.Contains(s.Group, "."):
		fldPath.Invalid("group", s.Group, "should be a domain with at least one dot")
	}
	validate.RequiredOneOf(fldPath, "scope", s.Scope, v1.ClusterScoped, v1.NamespaceScoped)
	mustBeStructural := schemaPresence(fldPath, v, t)
	c.versions(fldPath, v, t, mustBeStructural)
	names := fldPath.Child("names")
	names.Present("plural", s.Names.Plural != "")
	names.Present("singular", s.Names.Singular != "")
	names.Present("kind", s.Names.Kind != "")
	names.Present("listKind", s.Names.ListKind != "")
	nameRules(names, &s.Names)
	c.shared(fldPath, v, t, mustBeStructural)
	if s.Conversion != nil {
		if s.Conversion.Strategy != v1.NoneConverter && s.PreserveUnknownFields {
			fldPath.Invalid("conversion.strategy", s.Conversion.Strategy, "must be None if spec.preserveUnknownFields is true")
		}
		conversionRules(fldPath.Child("conversion"), s.Conversion, t)
	}
}

// schemaPresence requires a schema in every version and reports whether schemas must be structural.
func schemaPresence(fldPath validate.Path, v *view, t tolerance) (mustBeStructural bool) {
	if schemaOf(v.schema) == nil {
		missing := "schemas are required"
		if t.schemaMayMiss() {
			missing = "because otherwise all fields are pruned"
		}
		for i, version := range v.versions {
			optional := t.schemaMayMiss() && (v.PreserveUnknownFields || !version.Served)
			if schemaOf(version.Schema) == nil && !optional {
				fldPath.Index("versions", i).Required("schema.openAPIV3Schema", missing)
			}
		}
	}
	if !v.PreserveUnknownFields {
		return true
	}
	if anySchema(v.CustomResourceDefinitionSpec, func(s *v1.JSONSchemaProps) bool { return s.Default != nil }) {
		fldPath.Invalid("preserveUnknownFields", true, "must be false in order to use defaults in the schema")
		return true
	}
	return anySchema(v.CustomResourceDefinitionSpec, hasExtensions) || !t.nonStructural()
}

func hasExtensions(s *v1.JSONSchemaProps) bool {
	return s.XEmbeddedResource || s.XPreserveUnknownFields != nil || s.XIntOrString || len(s.XListMapKeys) > 0 || s.XListType != nil || len(s.XValidations) > 0
}

// versions validates each version, and all versions together.
func (c *checker) versions(fldPath validate.Path, v *view, t tolerance, mustBeStructural bool) {
	names := validate.Set[string]{}
	twice := false
	storage := 0
	for i := range v.versions {
		version := &v.versions[i]
		fldPath := fldPath.Index("versions", i)
		if version.Storage {
			storage++
		}
		twice = !names.Add(version.Name) || twice
		joined(fldPath, "name", version.Name, "", validate.DNS1035Label)
		deprecationWarning(fldPath, version)
		s := schemaRules{checker: c, tolerance: t, structural: mustBeStructural, status: v.hasStatus(version.Name), version: version.Name}
		s.check(fldPath.Child("schema"), version.Schema, v.Versions[i].Schema)
		subresourceRules(fldPath.Child("subresources"), version.Subresources)
		columnRules(fldPath, version.AdditionalPrinterColumns)
		if len(version.SelectableFields) > 0 {
			const misplaced = "selectableFields may only be set when version.schema.openAPIV3Schema is not included"
			selectableFields(fldPath, version.SelectableFields, schemaOf(version.Schema), misplaced)
		}
	}
	all := v.versions
	if twice {
		fldPath.Invalid("versions", all, "must contain unique version names")
	}
	if storage != 1 {
		fldPath.Invalid("versions", all, "must have exactly one version marked as storage version")
	}
	if len(v.versions) > 0 && v.versions[0].Name != "" {
		joined(fldPath, "version", v.versions[0].Name, "", validate.DNS1035Label)
	}
}

// shared validates the parts that all versions share.
func (c *checker) shared(fldPath validate.Path, v *view, t tolerance, mustBeStructural bool) {
	s := schemaRules{checker: c, tolerance: t, structural: mustBeStructural, status: slices.ContainsFunc(v.Versions, func(v v1.CustomResourceDefinitionVersion) bool {
		return hasStatus(v.Subresources)
	})}
	if len(v.versions) > 0 {
		s.version = v.versions[0].Name
	}
	s.check(fldPath.Child("validation"), v.schema, v.schema)
	subresourceRules(fldPath.Child("subresources"), v.subresources)
	columnRules(fldPath, v.columns)
	if len(v.fields) > 0 {
		of := schemaOf(v.schema)
		if of == nil && v.schema != nil {
			of = &v1.JSONSchemaProps{}
		}
		selectableFields(fldPath, v.fields, of, "selectableFields may only be set when validations.schema is included")
	}
}

func deprecationWarning(fldPath validate.Path, v *v1.CustomResourceDefinitionVersion) {
	const name = "deprecationWarning"
	warning := v.DeprecationWarning
	switch {
	case warning == nil:
		return
	case !v.Deprecated:
		fldPath.Invalid(name, warning, "can only be set for deprecated versions")
		return
	}
	if len(*warning) > 256 {
		fldPath.Invalid(name, warning, "must be <= 256 characters long")
	}
	if *warning == "" {
		fldPath.Invalid(name, warning, "must not be an empty string")
	}
	if i := strings.IndexFunc(*warning, func(r rune) bool { return !unicode.IsPrint(r) }); i >= 0 {
		fldPath.Invalid(name, warning, fmt.Sprintf("must only contain printable UTF-8 characters; non-printable character found at index %d", i))
	}
	if !utf8.ValidString(*warning) {
		fldPath.Invalid(name, warning, "must only contain printable UTF-8 characters")
	}
}

func nameRules(fldPath validate.Path, n *v1.CustomResourceDefinitionNames) {
	const mixed = "may have mixed case, but should otherwise match: "
	optional := func(name, value, before string) {
		if value != "" {
			joined(fldPath, name, value, before, validate.DNS1035Label)
		}
	}
	optional("plural", n.Plural, "")
	optional("singular", n.Singular, "")
	optional("kind", n.Kind, mixed)
	optional("listKind", n.ListKind, mixed)
	for i, short := range n.ShortNames {
		joined(fldPath.Index("shortNames", i), "", short, "", validate.DNS1035Label)
	}
	if n.Kind != "" && n.Kind == n.ListKind {
		fldPath.Invalid("listKind", n.ListKind, "kind and listKind may not be the same")
	}
	for i, category := range n.Categories {
		joined(fldPath.Index("categories", i), "", category, "", validate.DNS1035Label)
	}
}
