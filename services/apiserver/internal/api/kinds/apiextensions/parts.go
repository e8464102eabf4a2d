package apiextensions

import (
	"slices"
	"strings"

	"binnacle/services/apiserver/internal/crd/rules"
	"binnacle/services/apiserver/internal/crd/structural"
	v1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
	"binnacle/services/apiserver/internal/registry/validate"
)

func subresourceRules(at validate.At, s *v1.CustomResourceSubresources) {
	if s == nil || s.Scale == nil {
		return
	}
	scalePath(at, "scale.specReplicasPath", s.Scale.SpecReplicasPath, "should be a json path under .spec", ".spec.")
	scalePath(at, "scale.statusReplicasPath", s.Scale.StatusReplicasPath, "should be a json path under .status", ".status.")
	if p := s.Scale.LabelSelectorPath; p != nil && *p != "" {
		scalePath(at, "scale.labelSelectorPath", *p, "should be a json path under either .spec or .status", ".spec.", ".status.")
	}
}

// scalePath requires a path with one of the given prefixes.
func scalePath(at validate.At, name, path, detail string, begins ...string) {
	switch {
	case path == "":
		at.Required(name, "")
	case path[0] != '.':
		at.Invalid(name, path, notSimple)
	case !slices.ContainsFunc(begins, func(begin string) bool { return strings.HasPrefix(path, begin) }):
		at.Invalid(name, path, detail)
	}
}

const notSimple = "must be a simple json path starting with ."

var (
	columnTypes   = []string{"boolean", "date", "integer", "number", "string"}
	columnFormats = []string{"byte", "date", "date-time", "double", "float", "int32", "int64", "password"}
)

func columnRules(at validate.At, columns []v1.CustomResourceColumnDefinition) {
	validate.Each(at, "additionalPrinterColumns", columns, func(at validate.At, c *v1.CustomResourceColumnDefinition) {
		at.Present("name", c.Name != "")
		oneOf := "must be one of " + strings.Join(columnTypes, ",")
		if c.Type == "" {
			at.Required("type", oneOf)
		} else if !slices.Contains(columnTypes, c.Type) {
			at.Invalid("type", c.Type, oneOf)
		}
		if c.Format != "" && !slices.Contains(columnFormats, c.Format) {
			at.Invalid("format", c.Format, "must be one of "+strings.Join(columnFormats, ","))
		}
		if c.JSONPath == "" {
			at.Required("JSONPath", "")
		} else if c.JSONPath[0] != '.' {
			at.Invalid("JSONPath", c.JSONPath, notSimple)
		}
	})
}

// maxSelectableFields is the maximum number of selectable fields.
const maxSelectableFields = 8

// selectableFields requires paths to scalar values that the schema defines. Without a schema, the
// error is misplaced.
func selectableFields(at validate.At, fields []v1.SelectableField, s *v1.JSONSchemaProps, misplaced string) {
	if s == nil {
		at.Invalid("selectableFields", "", misplaced)
		return
	}
	if err := structural.Unsupported(s); err != nil {
		at.Invalid("schema.openAPIV3Schema", "", err.Error())
		s = &v1.JSONSchemaProps{} // an empty schema
	}
	seen := validate.Set[string]{}
	validate.Each(at, "selectableFields", fields, func(at validate.At, f *v1.SelectableField) {
		if f.JSONPath == "" {
			at.Required("jsonPath", "")
			return
		}
		path, found, err := rules.ValidFieldPath(f.JSONPath, s, false)
		if err != nil {
			at.Invalid("jsonPath", f.JSONPath, "is an invalid path: "+err.Error())
			return
		}
		if path.Root().String() == "metadata" {
			at.Invalid("jsonPath", f.JSONPath, "must not point to fields in metadata")
		}
		if found == nil || !slices.Contains([]string{"string", "boolean", "integer"}, found.Type) {
			at.Invalid("jsonPath", f.JSONPath, "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.")
		}
		if !seen.Add(path.String()) {
			at.Duplicate("jsonPath", f.JSONPath)
		}
	})
	if len(seen) > maxSelectableFields {
		at.TooMany("selectableFields", len(seen), maxSelectableFields)
	}
}

// reviewVersions are the versions of ConversionReview that the server supports.
var reviewVersions = []string{"v1", "v1beta1"}

func isReviewVersion(v string) bool { return slices.Contains(reviewVersions, v) }

func conversionRules(at validate.At, c *v1.CustomResourceConversion, t tolerance) {
	validate.RequiredOneOf(at, "strategy", c.Strategy, v1.NoneConverter, v1.WebhookConverter)
	var client *v1.WebhookClientConfig
	var versions []string
	if c.Webhook != nil {
		client, versions = c.Webhook.ClientConfig, c.Webhook.ConversionReviewVersions
	}
	if c.Strategy != v1.WebhookConverter {
		const misplaced = "should not be set when strategy is not set to Webhook"
		at.Absent("webhookClientConfig", client != nil, misplaced)
		at.Absent("conversionReviewVersions", len(versions) > 0, misplaced)
		return
	}
	if client == nil {
		at.Required("webhookClientConfig", "required when strategy is set to Webhook")
	} else {
		clientRules(at.Child("webhookClientConfig"), client, t)
	}
	reviewVersionRules(at, versions, t)
}

func clientRules(at validate.At, c *v1.WebhookClientConfig, t tolerance) {
	switch {
	case (c.URL == nil) == (c.Service == nil):
		at.Required("", "exactly one of url or service is required")
	case c.URL != nil:
		at.WebhookURL("url", *c.URL)
	default:
		port := int32(443)
		if c.Service.Port != nil {
			port = *c.Service.Port
		}
		// Kubernetes swaps the two arguments here, which is visible in its errors.
		at.Child("service").WebhookService(c.Service.Name, c.Service.Namespace, c.Service.Path, port)
	}
	if len(c.CABundle) > 0 && !t.anyCABundle() {
		at.CABundle("caBundle", c.CABundle)
	}
}

func reviewVersionRules(at validate.At, versions []string, t tolerance) {
	if len(versions) == 0 {
		at.Required("conversionReviewVersions", "")
		return
	}
	seen := validate.Set[string]{}
	for i, v := range versions {
		at := at.Index("conversionReviewVersions", i)
		if !seen.Add(v) {
			at.Invalid("", v, "duplicate version")
			continue
		}
		at.Text("", v, validate.DNS1035Label)
	}
	if !slices.ContainsFunc(versions, isReviewVersion) && !t.anyReviewVersion() {
		at.Invalid("conversionReviewVersions", versions, "must include at least one of "+strings.Join(reviewVersions, ", "))
	}
}
