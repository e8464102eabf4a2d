package apiextensions

import (
	"context"
	"slices"
	"strings"

	"binnacle/services/apiserver/internal/crd/definition"
	"binnacle/services/apiserver/internal/crd/schema"
	"binnacle/services/apiserver/internal/crd/structural"
	v1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
	"binnacle/services/apiserver/internal/registry/validate"
)

// tolerance holds the live definition, whose violations a new one may keep: later rules must not
// block changes of definitions that were stored before. Each method is evaluated only after a
// violation.
type tolerance struct{ live *v1.CustomResourceDefinition } // nil at creation

// liveSchema reports whether any schema of the live definition satisfies has.
func (t tolerance) liveSchema(has func(*v1.JSONSchemaProps) bool) bool {
	return t.live != nil && anySchema(&t.live.Spec, has)
}

// anySchema reports whether any schema of a definition satisfies has.
func anySchema(s *v1.CustomResourceDefinitionSpec, has func(*v1.JSONSchemaProps) bool) bool {
	return slices.ContainsFunc(s.Versions, func(v v1.CustomResourceDefinitionVersion) bool {
		return structural.AnySchema(schemaOf(v.Schema), has)
	})
}

// schemaMayMiss reports whether a version of the live definition has no schema.
func (t tolerance) schemaMayMiss() bool {
	return t.live != nil && slices.ContainsFunc(t.live.Spec.Versions, func(v v1.CustomResourceDefinitionVersion) bool {
		return schemaOf(v.Schema) == nil
	})
}

// anyType reports whether the live definition has invalid types.
func (t tolerance) anyType() bool {
	return t.liveSchema(func(s *v1.JSONSchemaProps) bool { return s.Type != "" && !slices.Contains(types, s.Type) })
}

// nonStructural reports whether the live definition has a schema that is not structural.
func (t tolerance) nonStructural() bool {
	return t.live != nil && slices.ContainsFunc(t.live.Spec.Versions, func(v v1.CustomResourceDefinitionVersion) bool {
		s := schemaOf(v.Schema)
		return s != nil && (structural.Unsupported(s) != nil || len(structural.Check(nil, s)) > 0)
	})
}

// looseSets reports whether the live definition has a set of objects or lists that are not atomic.
func (t tolerance) looseSets() bool {
	return t.liveSchema(func(s *v1.JSONSchemaProps) bool { return nonAtomicItemsExtension(s) != "" })
}

// looseKeys reports whether the live definition has a map whose keys may be absent or null.
func (t tolerance) looseKeys() bool {
	return t.liveSchema(func(s *v1.JSONSchemaProps) bool {
		return len(validate.Check(func(fld validate.Field) { forbidNullItems(fld, s) })) > 0
	})
}

// unprunedDefaults reports whether the live definition has a default with unknown fields.
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

// unchanged reports whether a version has the same schema in the live definition.
func (t tolerance) unchanged(name string, now *v1.CustomResourceValidation) bool {
	if t.live == nil {
		return false
	}
	i := slices.IndexFunc(t.live.Spec.Versions, func(v v1.CustomResourceDefinitionVersion) bool { return v.Name == name })
	return i >= 0 && alike.DeepEqual(t.live.Spec.Versions[i].Schema, now)
}

// established reports whether names and scope can no longer change.
func (t tolerance) established() bool {
	return t.live != nil && definition.IsTrue(t.live, v1.Established)
}

// anyReviewVersion reports whether the live definition requests only review versions that the
// server does not support.
func (t tolerance) anyReviewVersion() bool {
	if t.live == nil {
		return false
	}
	c := t.live.Spec.Conversion
	return c != nil && c.Webhook != nil && len(c.Webhook.ConversionReviewVersions) > 0 &&
		!slices.ContainsFunc(c.Webhook.ConversionReviewVersions, isReviewVersion)
}

// anyCABundle reports whether the definition is not served yet, or the live one's certificates are
// invalid.
func (t tolerance) anyCABundle() bool {
	if !t.established() {
		return true
	}
	c := t.live.Spec.Conversion
	return c != nil && c.Webhook != nil && c.Webhook.ClientConfig != nil && len(c.Webhook.ClientConfig.CABundle) > 0 &&
		validate.CheckCABundle(c.Webhook.ClientConfig.CABundle) != nil
}
