package apiextensions

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/crd/definition"
	"binnacle/services/apiserver/internal/crd/rules"
	v1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
	"binnacle/services/apiserver/internal/registry/meta"
	"binnacle/services/apiserver/internal/registry/validate"
)

// checker holds the dependencies of the rules of definitions.
type checker struct {
	cel *rules.Compiler
	// check checks the validation rules of one definition.
	check func(rules.SchemaCheck) field.ErrorList
}

// forDefinition returns a checker for one definition, whose versions usually have similar rules.
func (c *checker) forDefinition() *checker { return &checker{c.cel, c.cel.NewSchemaChecker()} }

// validateDefinitionName validates the name of a definition: the resource and the group.
func validateDefinitionName(d *v1.CustomResourceDefinition, name string, prefix bool) []string {
	errs := meta.DNSSubdomain(name, prefix)
	if name != d.Spec.Names.Plural+"."+d.Spec.Group {
		errs = append(errs, `must be spec.names.plural+"."+spec.group`)
	}
	return errs
}

func (c *checker) validateCreate(definition *v1.CustomResourceDefinition) field.ErrorList {
	return validate.Check(func(fld validate.Field) {
		c.forDefinition().validateSpec(fld.Child("spec"), &definition.Spec, tolerance{})
		validateNames(fld.Child("status", "acceptedNames"), &definition.Status.AcceptedNames)
		validateStoredVersions(fld.Child("status"), definition)
		validateApproval(fld.Child("metadata"), definition, nil)
		if definition.Spec.PreserveUnknownFields {
			forbidPreserveUnknownFields(fld.Child("spec"))
		}
	})
}

// validateUpdate validates a change of a definition. Violations of the live one may stay.
func (c *checker) validateUpdate(definition, live *v1.CustomResourceDefinition) field.ErrorList {
	return validate.Check(func(fld validate.Field) {
		t := tolerance{live: live}
		spec := fld.Child("spec")
		c.forDefinition().validateSpec(spec, &definition.Spec, t)
		if t.isEstablished() {
			spec.CheckImmutable("scope", string(definition.Spec.Scope), string(live.Spec.Scope))
			spec.Child("names").CheckImmutable("kind", definition.Spec.Names.Kind, live.Spec.Names.Kind)
		}
		spec.CheckImmutable("group", definition.Spec.Group, live.Spec.Group)
		spec.Child("names").CheckImmutable("plural", definition.Spec.Names.Plural, live.Spec.Names.Plural)
		validateNames(fld.Child("status", "acceptedNames"), &definition.Status.AcceptedNames)
		validateStoredVersions(fld.Child("status"), definition)
		validateApproval(fld.Child("metadata"), definition, live)
		if definition.Spec.PreserveUnknownFields && !live.Spec.PreserveUnknownFields {
			forbidPreserveUnknownFields(spec)
		}
	})
}

// validateStatus validates a change of the status only, which may contain stored versions that do
// not exist and any condition.
func validateStatus(fld validate.Field, d, _ *v1.CustomResourceDefinition) {
	validateNames(fld.Child("status", "acceptedNames"), &d.Status.AcceptedNames)
}

// forbidPreserveUnknownFields rejects the field of the older version.
func forbidPreserveUnknownFields(fld validate.Field) {
	fld.Invalid("preserveUnknownFields", true,
		"cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead")
}

// validateStoredVersions requires that every stored version exists.
func validateStoredVersions(fld validate.Field, definition *v1.CustomResourceDefinition) {
	stored := definition.Status.StoredVersions
	if len(stored) == 0 {
		fld.Invalid("storedVersions", stored, "must have at least one stored version")
		return
	}
	missing := validate.KeySet(stored, func(v *string) string { return *v })
	for _, v := range definition.Spec.Versions {
		if v.Storage && !missing.Has(v.Name) {
			fld.Invalid("storedVersions", stored, "must have the storage version "+v.Name)
		}
		delete(missing, v.Name)
	}
	for i, v := range stored {
		if missing.Has(v) {
			fld.Index("storedVersions", i).
				Invalid("", v, "missing from spec.versions; "+v+" was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in "+v+" and removes "+v+" from status.storedVersions")
		}
	}
}

// validateApproval validates the approval annotation in groups owned by Kubernetes. The state of
// the live definition may stay.
func validateApproval(fld validate.Field, d, live *v1.CustomResourceDefinition) {
	if !definition.IsProtected(d.Spec.Group) {
		return
	}
	state, reason := definition.ApprovalOf(d)
	if live != nil {
		if before, _ := definition.ApprovalOf(live); before == state {
			return
		}
	}
	annotation := fld.Key("annotations", v1.KubeAPIApprovedAnnotation)
	switch state {
	case definition.ApprovalMissing:
		annotation.Required("", reason)
	case definition.ApprovalInvalid:
		annotation.Invalid("", d.Annotations[v1.KubeAPIApprovedAnnotation], reason)
	}
}
