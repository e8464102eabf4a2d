package apiextensions

import (
	"context"
	"slices"
	"strings"

	v1 "binnacle/services/apiserver/internal/apis/apiextensions/v1"
	"binnacle/services/apiserver/internal/customresource/definition"
	"binnacle/services/apiserver/internal/customresource/schema"
	"binnacle/services/apiserver/internal/customresource/structural"
	"binnacle/services/apiserver/internal/registry/validate"
)

// tolerance is what a definition may keep because the live one has it: rules
// that came later must not lock up definitions that were stored before them.
// Each of its answers is worked out only when something is wrong.
type tolerance struct{ live *v1.CustomResourceDefinition } // nil at creation

// liveSchema tells whether a schema of the live definition has a quality.
func (t tolerance) liveSchema(has func(*v1.JSONSchemaProps) bool) bool {
	return t.live != nil && anySchema(&t.live.Spec, has)
}

// anySchema tells whether a definition has a schema of a quality.
func anySchema(s *v1.CustomResourceDefinitionSpec, has func(*v1.JSONSchemaProps) bool) bool {
	return slices.ContainsFunc(s.Versions, func(v v1.CustomResourceDefinitionVersion) bool {
		return structural.Any(schemaOf(v.Schema), has)
	})
}

// schemaMayMiss: a version of the live definition has no schema.
func (t tolerance) schemaMayMiss() bool {
	return t.live != nil && slices.ContainsFunc(t.live.Spec.Versions, func(v v1.CustomResourceDefinitionVersion) bool {
		return schemaOf(v.Schema) == nil
	})
}

// anyType: the live definition has types that are none.
func (t tolerance) anyType() bool {
	return t.liveSchema(func(s *v1.JSONSchemaProps) bool { return s.Type != "" && !slices.Contains(types, s.Type) })
}

// nonStructural: the live definition has a schema that is not structural.
func (t tolerance) nonStructural() bool {
	return t.live != nil && slices.ContainsFunc(t.live.Spec.Versions, func(v v1.CustomResourceDefinitionVersion) bool {
		s := schemaOf(v.Schema)
		return s != nil && (structural.Unsupported(s) != nil || len(structural.Check(nil, s)) > 0)
	})
}

// looseSets: the live definition has a set of objects or lists that are not
// compared as a whole.
func (t tolerance) looseSets() bool {
	return t.liveSchema(func(s *v1.JSONSchemaProps) bool { return looseItems(s) != "" })
}

// looseKeys: the live definition has a map whose keys may be missing or null.
func (t tolerance) looseKeys() bool {
	return t.liveSchema(func(s *v1.JSONSchemaProps) bool {
		return len(validate.Check(func(at validate.At) { keyRules(at, s) })) > 0
	})
}

// unprunedDefaults: the live definition has a default with unknown fields.
func (t tolerance) unprunedDefaults() bool {
	return t.live != nil && slices.ContainsFunc(t.live.Spec.Versions, func(v v1.CustomResourceDefinitionVersion) bool {
		s := schemaOf(v.Schema)
		if s == nil || structural.Unsupported(s) != nil || len(structural.Check(nil, s)) > 0 {
			return false
		}
		for _, err := range schema.CheckDefaults(context.Background(), nil, s, true, nil) {
			if strings.Contains(err.Detail, "must not have unknown fields") {
				return true
			}
		}
		return false
	})
}

// unchanged tells whether a version had the same schema before.
func (t tolerance) unchanged(name string, now *v1.CustomResourceValidation) bool {
	if t.live == nil {
		return false
	}
	i := slices.IndexFunc(t.live.Spec.Versions, func(v v1.CustomResourceDefinitionVersion) bool { return v.Name == name })
	return i >= 0 && alike.DeepEqual(t.live.Spec.Versions[i].Schema, now)
}

// established tells whether names and scope can no longer change.
func (t tolerance) established() bool {
	return t.live != nil && definition.IsTrue(t.live, v1.Established)
}

// anyReviewVersion: the live definition asks for reviews in versions that the
// server does not speak.
func (t tolerance) anyReviewVersion() bool {
	if t.live == nil {
		return false
	}
	c := t.live.Spec.Conversion
	return c != nil && c.Webhook != nil && len(c.Webhook.ConversionReviewVersions) > 0 &&
		!slices.ContainsFunc(c.Webhook.ConversionReviewVersions, isReviewVersion)
}

// anyCABundle: the definition is not served yet, or the live one's certificates
// cannot be read.
func (t tolerance) anyCABundle() bool {
	if !t.established() {
		return true
	}
	c := t.live.Spec.Conversion
	return c != nil && c.Webhook != nil && c.Webhook.ClientConfig != nil && len(c.Webhook.ClientConfig.CABundle) > 0 &&
		validate.BrokenCABundle(c.Webhook.ClientConfig.CABundle) != nil
}
