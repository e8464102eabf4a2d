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

// tolerance decides which violations of newer validation rules an update of a definition may keep.
// As in Kubernetes, a rule that was added later does not apply to an update if the live definition
// already violates it, so that old definitions can still be updated. The methods named allows… are
// called only after their rule was violated, because most of them read all schemas.
type tolerance struct {
	live *v1.CustomResourceDefinition // nil for a create
}

// anyLiveSchema reports whether any schema of the live definition satisfies has.
func (t tolerance) anyLiveSchema(has func(*v1.JSONSchemaProps) bool) bool {
	return t.live != nil && anySchema(&t.live.Spec, has)
}

// anyLiveVersion reports whether any version of the live definition satisfies has. has gets the
// schema of the version, which is nil if the version has none.
func (t tolerance) anyLiveVersion(has func(*v1.JSONSchemaProps) bool) bool {
	return t.live != nil && slices.ContainsFunc(t.live.Spec.Versions, func(v v1.CustomResourceDefinitionVersion) bool {
		return has(schemaOf(v.Schema))
	})
}

// anySchema reports whether any schema of a definition satisfies has. It includes the schemas of
// nested values.
func anySchema(s *v1.CustomResourceDefinitionSpec, has func(*v1.JSONSchemaProps) bool) bool {
	return slices.ContainsFunc(s.Versions, func(v v1.CustomResourceDefinitionVersion) bool {
		return structural.AnySchema(schemaOf(v.Schema), has)
	})
}

func isStructural(s *v1.JSONSchemaProps) bool {
	return structural.Unsupported(s) == nil && len(structural.Check(nil, s)) == 0
}

// allowsMissingSchemas reports whether versions need no schema, because a version of the live
// definition has none.
func (t tolerance) allowsMissingSchemas() bool {
	return t.anyLiveVersion(func(s *v1.JSONSchemaProps) bool { return s == nil })
}

// allowsUnknownTypes reports whether the type of a schema may be unknown, because the live
// definition has such a schema.
func (t tolerance) allowsUnknownTypes() bool {
	return t.anyLiveSchema(func(s *v1.JSONSchemaProps) bool { return s.Type != "" && !slices.Contains(types, s.Type) })
}

// allowsNonStructural reports whether schemas need not be structural, because the live definition
// has a schema that is not.
func (t tolerance) allowsNonStructural() bool {
	return t.anyLiveVersion(func(s *v1.JSONSchemaProps) bool { return s != nil && !isStructural(s) })
}

// allowsNonAtomicSetItems reports whether a list of type set may contain objects or lists that are
// not atomic, because the live definition has such a list.
func (t tolerance) allowsNonAtomicSetItems() bool {
	return t.anyLiveSchema(func(s *v1.JSONSchemaProps) bool { return nonAtomicItemsExtension(s) != "" })
}

// allowsNullListItems reports whether the items of a set or the keys of a list of type map may be
// null or absent, because the live definition has such a list.
func (t tolerance) allowsNullListItems() bool {
	return t.anyLiveSchema(func(s *v1.JSONSchemaProps) bool {
		return len(validate.Check(func(fld validate.Field) { forbidNullItems(fld, s) })) > 0
	})
}

// allowsUnprunedDefaults reports whether a default may have unknown fields, because a default of
// the live definition has.
func (t tolerance) allowsUnprunedDefaults() bool {
	return t.anyLiveVersion(func(schemaProps *v1.JSONSchemaProps) bool {
		if schemaProps == nil || !isStructural(schemaProps) {
			return false
		}
		for _, err := range schema.CheckDefaults(context.Background(), nil, schemaProps, true, nil) {
			if strings.Contains(err.Detail, "must not have unknown fields") {
				return true
			}
		}
		return false
	})
}

func (t tolerance) hasSameSchema(name string, now *v1.CustomResourceValidation) bool {
	if t.live == nil {
		return false
	}
	i := slices.IndexFunc(t.live.Spec.Versions, func(v v1.CustomResourceDefinitionVersion) bool { return v.Name == name })
	return i >= 0 && alike.DeepEqual(t.live.Spec.Versions[i].Schema, now)
}

// isEstablished reports whether the live definition has been served, so that names and scope can no
// longer change.
func (t tolerance) isEstablished() bool {
	return t.live != nil && definition.IsTrue(t.live, v1.Established)
}

// allowsUnsupportedReviewVersions reports whether conversionReviewVersions may contain no version
// that the server supports, because the live definition has such a list.
func (t tolerance) allowsUnsupportedReviewVersions() bool {
	if t.live == nil {
		return false
	}
	c := t.live.Spec.Conversion
	return c != nil && c.Webhook != nil && len(c.Webhook.ConversionReviewVersions) > 0 &&
		!slices.ContainsFunc(c.Webhook.ConversionReviewVersions, isReviewVersion)
}

// allowsInvalidCABundle reports whether the certificates of the webhook may be invalid, because the
// definition is not established yet, or because the live definition has invalid ones.
func (t tolerance) allowsInvalidCABundle() bool {
	if !t.isEstablished() {
		return true
	}
	c := t.live.Spec.Conversion
	return c != nil && c.Webhook != nil && c.Webhook.ClientConfig != nil && len(c.Webhook.ClientConfig.CABundle) > 0 &&
		validate.CheckCABundle(c.Webhook.ClientConfig.CABundle) != nil
}
