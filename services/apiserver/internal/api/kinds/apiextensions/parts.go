package apiextensions

import (
	"slices"
	"strings"

	"binnacle/services/apiserver/internal/crd/rules"
	"binnacle/services/apiserver/internal/crd/structural"
	v1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
	"binnacle/services/apiserver/internal/registry/validate"
)

func subresourceRules(fldPath validate.Path, s *v1.CustomResourceSubresources) {
	if s == nil || s.Scale == nil {
		return
	}
	scalePath(fldPath, "scale.specReplicasPath", s.Scale.SpecReplicasPath, "should be a json path under .spec", ".spec.")
	scalePath(fldPath, "scale.statusReplicasPath", s.Scale.StatusReplicasPath, "should be a json path under .status", ".status.")
	if p := s.Scale.LabelSelectorPath; p != nil && *p != "" {
		scalePath(fldPath, "scale.labelSelectorPath", *p, "should be a json path under either .spec or .status", ".spec.", ".status.")
	}
}

// scalePath requires a path with one of the given prefixes.
func scalePath(fldPath validate.Path, name, path, detail string, begins ...string) {
	switch {
	case path == "":
		fldPath.Required(name, "")
	case path[0] != '.':
		fldPath.Invalid(name, path, notSimple)
	case !slices.ContainsFunc(begins, func(begin string) bool { return strings.HasPrefix(path, begin) }):
		fldPath.Invalid(name, path, detail)
	}
}

const notSimple = "must be a simple json path starting with ."

var (
	columnTypes   = []string{"boolean", "date", "integer", "number", "string"}
	columnFormats = []string{"byte", "date", "date-time", "double", "float", "int32", "int64", "password"}
)

func columnRules(fldPath validate.Path, columns []v1.CustomResourceColumnDefinition) {
	validate.Each(fldPath, "additionalPrinterColumns", columns, func(fldPath validate.Path, c *v1.CustomResourceColumnDefinition) {
		fldPath.Present("name", c.Name != "")
		oneOf := "must be one of " + strings.Join(columnTypes, ",")
		if c.Type == "" {
			fldPath.Required("type", oneOf)
		} else if !slices.Contains(columnTypes, c.Type) {
			fldPath.Invalid("type", c.Type, oneOf)
		}
		if c.Format != "" && !slices.Contains(columnFormats, c.Format) {
			fldPath.Invalid("format", c.Format, "must be one of "+strings.Join(columnFormats, ","))
		}
		if c.JSONPath == "" {
			fldPath.Required("JSONPath", "")
		} else if c.JSONPath[0] != '.' {
			fldPath.Invalid("JSONPath", c.JSONPath, notSimple)
		}
	})
}

// maxSelectableFields is the maximum number of selectable fields.
const maxSelectableFields = 8

// selectableFields requires paths to scalar values that the schema defines. Without a schema, the
// error is misplaced.
func selectableFields(fldPath validate.Path, fields []v1.SelectableField, s *v1.JSONSchemaProps, misplaced string) {
	if s == nil {
		fldPath.Invalid("selectableFields", "", misplaced)
		return
	}
	if err := structural.Unsupported(s); err != nil {
		fldPath.Invalid("schema.openAPIV3Schema", "", err.Error())
		s = &v1.JSONSchemaProps{} // an empty schema
	}
	seen := validate.Set[string]{}
	validate.Each(fldPath, "selectableFields", fields, func(fldPath validate.Path, f *v1.SelectableField) {
		if f.JSONPath == "" {
			fldPath.Required("jsonPath", "")
			return
		}
		path, found, err := rules.ValidFieldPath(f.JSONPath, s, false)
		if err != nil {
			fldPath.Invalid("jsonPath", f.JSONPath, "is an invalid path: "+err.Error())
			return
		}
		if path.Root().String() == "metadata" {
			fldPath.Invalid("jsonPath", f.JSONPath, "must not point to fields in metadata")
		}
		if found == nil || !slices.Contains([]string{"string", "boolean", "integer"}, found.Type) {
			fldPath.Invalid("jsonPath", f.JSONPath, "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.")
		}
		if !seen.Add(path.String()) {
			fldPath.Duplicate("jsonPath", f.JSONPath)
		}
	})
	if len(seen) > maxSelectableFields {
		fldPath.TooMany("selectableFields", len(seen), maxSelectableFields)
	}
}

// reviewVersions are the versions of ConversionReview that the server supports.
var reviewVersions = []string{"v1", "v1beta1"}

func isReviewVersion(v string) bool { return slices.Contains(reviewVersions, v) }

func conversionRules(fldPath validate.Path, c *v1.CustomResourceConversion, t tolerance) {
	validate.RequiredOneOf(fldPath, "strategy", c.Strategy, v1.NoneConverter, v1.WebhookConverter)
	var client *v1.WebhookClientConfig
	var versions []string
	if c.Webhook != nil {
		client, versions = c.Webhook.ClientConfig, c.Webhook.ConversionReviewVersions
	}
	if c.Strategy != v1.WebhookConverter {
		const misplaced = "should not be set when strategy is not set to Webhook"
		fldPath.Absent("webhookClientConfig", client != nil, misplaced)
		fldPath.Absent("conversionReviewVersions", len(versions) > 0, misplaced)
		return
	}
	if client == nil {
		fldPath.Required("webhookClientConfig", "required when strategy is set to Webhook")
	} else {
		clientRules(fldPath.Child("webhookClientConfig"), client, t)
	}
	reviewVersionRules(fldPath, versions, t)
}

func clientRules(fldPath validate.Path, c *v1.WebhookClientConfig, t tolerance) {
	switch {
	case (c.URL == nil) == (c.Service == nil):
		fldPath.Required("", "exactly one of url or service is required")
	case c.URL != nil:
		fldPath.WebhookURL("url", *c.URL)
	default:
		port := int32(443)
		if c.Service.Port != nil {
			port = *c.Service.Port
		}
		// Kubernetes swaps the two arguments here, which is visible in its errors.
		fldPath.Child("service").WebhookService(c.Service.Name, c.Service.Namespace, c.Service.Path, port)
	}
	if len(c.CABundle) > 0 && !t.anyCABundle() {
		fldPath.CABundle("caBundle", c.CABundle)
	}
}

func reviewVersionRules(fldPath validate.Path, versions []string, t tolerance) {
	if len(versions) == 0 {
		fldPath.Required("conversionReviewVersions", "")
		return
	}
	seen := validate.Set[string]{}
	for i, v := range versions {
		fldPath := fldPath.Index("conversionReviewVersions", i)
		if !seen.Add(v) {
			fldPath.Invalid("", v, "duplicate version")
			continue
		}
		fldPath.Text("", v, validate.DNS1035Label)
	}
	if !slices.ContainsFunc(versions, isReviewVersion) && !t.anyReviewVersion() {
		fldPath.Invalid("conversionReviewVersions", versions, "must include at least one of "+strings.Join(reviewVersions, ", "))
	}
}
