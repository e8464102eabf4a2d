package apiextensions

import (
	"slices"
	"strings"

	"binnacle/services/apiserver/internal/crd/rules"
	"binnacle/services/apiserver/internal/crd/structural"
	v1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
	"binnacle/services/apiserver/internal/registry/validate"
)

func validateSubresources(fld validate.Field, s *v1.CustomResourceSubresources) {
	if s == nil || s.Scale == nil {
		return
	}
	scalePath(fld, "scale.specReplicasPath", s.Scale.SpecReplicasPath, "should be a json path under .spec", ".spec.")
	scalePath(fld, "scale.statusReplicasPath", s.Scale.StatusReplicasPath, "should be a json path under .status", ".status.")
	if p := s.Scale.LabelSelectorPath; p != nil && *p != "" {
		scalePath(fld, "scale.labelSelectorPath", *p, "should be a json path under either .spec or .status", ".spec.", ".status.")
	}
}

func scalePath(fld validate.Field, name, path, detail string, begins ...string) {
	switch {
	case path == "":
		fld.Required(name, "")
	case path[0] != '.':
		fld.Invalid(name, path, notSimple)
	case !slices.ContainsFunc(begins, func(start string) bool { return strings.HasPrefix(path, start) }):
		fld.Invalid(name, path, detail)
	}
}

const notSimple = "must be a simple json path starting with ."

var (
	columnTypes   = []string{"boolean", "date", "integer", "number", "string"}
	columnFormats = []string{"byte", "date", "date-time", "double", "float", "int32", "int64", "password"}
)

func validateColumns(fld validate.Field, columns []v1.CustomResourceColumnDefinition) {
	validate.Each(fld, "additionalPrinterColumns", columns, func(fld validate.Field, definition *v1.CustomResourceColumnDefinition) {
		fld.RequireSet("name", definition.Name != "")
		oneOf := "must be one of " + strings.Join(columnTypes, ",")
		if definition.Type == "" {
			fld.Required("type", oneOf)
		} else if !slices.Contains(columnTypes, definition.Type) {
			fld.Invalid("type", definition.Type, oneOf)
		}
		if definition.Format != "" && !slices.Contains(columnFormats, definition.Format) {
			fld.Invalid("format", definition.Format, "must be one of "+strings.Join(columnFormats, ","))
		}
		if definition.JSONPath == "" {
			fld.Required("JSONPath", "")
		} else if definition.JSONPath[0] != '.' {
			fld.Invalid("JSONPath", definition.JSONPath, notSimple)
		}
	})
}

// maxSelectableFields is the maximum number of selectable fields.
const maxSelectableFields = 8

// validateSelectableFields requires paths to scalar values that the schema defines. Without a
// schema, the error is misplaced.
func validateSelectableFields(fld validate.Field, fields []v1.SelectableField, schemaProps *v1.JSONSchemaProps, misplaced string) {
	if schemaProps == nil {
		fld.Invalid("selectableFields", "", misplaced)
		return
	}
	if err := structural.Unsupported(schemaProps); err != nil {
		fld.Invalid("schema.openAPIV3Schema", "", err.Error())
		schemaProps = &v1.JSONSchemaProps{} // an empty schema
	}
	seen := validate.Set[string]{}
	validate.Each(fld, "selectableFields", fields, func(fld validate.Field, selectableField *v1.SelectableField) {
		if selectableField.JSONPath == "" {
			fld.Required("jsonPath", "")
			return
		}
		path, found, err := rules.ValidFieldPath(selectableField.JSONPath, schemaProps, false)
		if err != nil {
			fld.Invalid("jsonPath", selectableField.JSONPath, "is an invalid path: "+err.Error())
			return
		}
		if path.Root().String() == "metadata" {
			fld.Invalid("jsonPath", selectableField.JSONPath, "must not point to fields in metadata")
		}
		if found == nil || !slices.Contains([]string{"string", "boolean", "integer"}, found.Type) {
			fld.Invalid("jsonPath", selectableField.JSONPath,
				"must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.")
		}
		if !seen.Add(path.String()) {
			fld.Duplicate("jsonPath", selectableField.JSONPath)
		}
	})
	if len(seen) > maxSelectableFields {
		fld.TooMany("selectableFields", len(seen), maxSelectableFields)
	}
}

// reviewVersions are the versions of ConversionReview that the server supports.
var reviewVersions = []string{"v1", "v1beta1"}

func isReviewVersion(v string) bool { return slices.Contains(reviewVersions, v) }

func validateConversion(fld validate.Field, c *v1.CustomResourceConversion, tolerated tolerance) {
	validate.RequiredOneOf(fld, "strategy", c.Strategy, v1.NoneConverter, v1.WebhookConverter)
	var client *v1.WebhookClientConfig
	var versions []string
	if c.Webhook != nil {
		client, versions = c.Webhook.ClientConfig, c.Webhook.ConversionReviewVersions
	}
	if c.Strategy != v1.WebhookConverter {
		const misplaced = "should not be set when strategy is not set to Webhook"
		fld.ForbidSet("webhookClientConfig", client != nil, misplaced)
		fld.ForbidSet("conversionReviewVersions", len(versions) > 0, misplaced)
		return
	}
	if client == nil {
		fld.Required("webhookClientConfig", "required when strategy is set to Webhook")
	} else {
		validateClientConfig(fld.Child("webhookClientConfig"), client, tolerated)
	}
	validateReviewVersions(fld, versions, tolerated)
}

func validateClientConfig(fld validate.Field, config *v1.WebhookClientConfig, tolerated tolerance) {
	switch {
	case (config.URL == nil) == (config.Service == nil):
		fld.Required("", "exactly one of url or service is required")
	case config.URL != nil:
		fld.CheckWebhookURL("url", *config.URL)
	default:
		port := int32(443)
		if config.Service.Port != nil {
			port = *config.Service.Port
		}
		// Kubernetes swaps the two arguments here, which is visible in its errors.
		fld.Child("service").CheckWebhookService(config.Service.Name, config.Service.Namespace, config.Service.Path, port)
	}
	if len(config.CABundle) > 0 && !tolerated.allowsInvalidCABundle() {
		fld.AddCABundle("caBundle", config.CABundle)
	}
}

func validateReviewVersions(fld validate.Field, versions []string, tolerated tolerance) {
	if len(versions) == 0 {
		fld.Required("conversionReviewVersions", "")
		return
	}
	seen := validate.Set[string]{}
	for i, v := range versions {
		fld := fld.Index("conversionReviewVersions", i)
		if !seen.Add(v) {
			fld.Invalid("", v, "duplicate version")
			continue
		}
		fld.CheckText("", v, validate.DNS1035Label)
	}
	if !slices.ContainsFunc(versions, isReviewVersion) && !tolerated.allowsUnsupportedReviewVersions() {
		fld.Invalid("conversionReviewVersions", versions, "must include at least one of "+strings.Join(reviewVersions, ", "))
	}
}
