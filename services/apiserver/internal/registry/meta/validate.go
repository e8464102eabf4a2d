package meta

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/api/validation/path"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/registry"
)

// ValidateCreate validates the metadata of an object to be created. Its name and its namespace must
// be final.
func ValidateCreate(kind *registry.Kind, obj registry.Object) field.ErrorList {
	path := field.NewPath("metadata")
	errs := ValidateObject(withoutFieldSets(obj), kind.Namespaced, nameRule(kind, obj), path)
	return append(errs, validateFinalizers(kind, obj, path)...)
}

// ValidateUpdate validates an update, after KeepServerFields and with the resourceVersion filled
// in. First come the rules of metadata for all kinds, then those of the kind in their order.
// rules returns the errors of the kind's own rules, given the errors before them.
func ValidateUpdate(
	kind *registry.Kind,
	order registry.Order,
	obj, old registry.Object,
	rules func(found field.ErrorList) field.ErrorList,
) field.ErrorList {
	at := field.NewPath("metadata")
	change := validation.ValidateObjectMetaAccessorUpdate(withoutFieldSets(obj), old, at)
	finalizers := validateFinalizers(kind, obj, at)
	invalidFinalizers := validation.ValidateFinalizers(obj.GetFinalizers(), at.Child("finalizers"))
	// An unchanged generateName may be invalid for the kind if it was written through a
	// subresource.
	prefix := obj.GetGenerateName()
	checksPrefix := prefix != old.GetGenerateName() || prefix != "" && slices.Contains(order, registry.MetaRules)
	// complete holds the errors of the metadata as of a new object. Other unchanged metadata is
	// valid.
	var errs, complete field.ErrorList
	if len(change) > 0 || len(finalizers) > 0 || len(invalidFinalizers) > 0 || checksPrefix || kind.ValidateObjectName != nil {
		errs = slices.Concat(ValidateObject(obj, kind.Namespaced, path.ValidatePathSegmentName, at), change)
		complete = append(ValidateObject(obj, kind.Namespaced, nameRule(kind, obj), at), finalizers...)
	}
	if order == nil {
		order = registry.Order{registry.MetaUpdateRules, registry.UpdateRules}
	}
	var own field.ErrorList
	for i, rule := range order {
		switch rule {
		case registry.MetaUpdateRules:
			errs = slices.Concat(errs, change, finalizers)
		case registry.MetaRules:
			errs = append(errs, complete...)
		case registry.CreateRules:
			errs = append(errs, kind.Create.Validate(obj)...)
		case registry.UpdateRules:
			if !slices.Contains(order[:i], registry.UpdateRules) {
				own = rules(errs)
			}
			errs = append(errs, own...)
		}
	}
	return errs
}

func nameRule(kind *registry.Kind, obj registry.Object) validation.ValidateNameFunc {
	switch {
	case kind.ValidateObjectName != nil:
		return func(name string, prefix bool) []string { return kind.ValidateObjectName(obj, name, prefix) }
	case kind.ValidateName != nil:
		return kind.ValidateName
	}
	return validation.NameIsDNSSubdomain
}

// validateFinalizers rejects finalizers without a domain, unless the kind allows them.
func validateFinalizers(k *registry.Kind, obj registry.Object, path *field.Path) field.ErrorList {
	if k.AllowUnqualifiedFinalizers {
		return nil
	}
	var errs field.ErrorList
	for i, f := range obj.GetFinalizers() {
		errs = append(errs, standardOrQualified(f, path.Child("finalizers").Index(i))...)
	}
	return errs
}

// ValidateFinalizerName validates one finalizer outside of the metadata.
func ValidateFinalizerName(name string, path *field.Path) field.ErrorList {
	errs := validation.ValidateFinalizerName(name, path)
	return append(errs, standardOrQualified(name, path)...)
}

// standardOrQualified rejects names without a domain that are not standard finalizers.
func standardOrQualified(name string, path *field.Path) field.ErrorList {
	if strings.Contains(name, "/") {
		return nil
	}
	switch name {
	case "kubernetes", metav1.FinalizerOrphanDependents, metav1.FinalizerDeleteDependents:
		return nil
	}
	return field.ErrorList{field.Invalid(path, name, "name is neither a standard finalizer name nor is it fully qualified")}
}
