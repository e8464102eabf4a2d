package meta

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/registry"
)

// ValidateCreate checks the metadata of an object to be created. Its name and
// its namespace have their final values by then.
func ValidateCreate(k *registry.Kind, obj registry.Object) field.ErrorList {
	path := field.NewPath("metadata")
	errs := validation.ValidateObjectMetaAccessor(obj, k.Namespaced, nameRule(k), path)
	return append(errs, validateFinalizers(k, obj, path)...)
}

// ValidateUpdate checks what an update makes of the metadata, after
// KeepServerFields and with the resourceVersion filled in.
func ValidateUpdate(k *registry.Kind, obj, old registry.Object) field.ErrorList {
	path := field.NewPath("metadata")
	errs := validation.ValidateObjectMetaAccessorUpdate(obj, old, path)
	return append(errs, validateFinalizers(k, obj, path)...)
}

func nameRule(k *registry.Kind) validation.ValidateNameFunc {
	if k.ValidateName == nil {
		return validation.NameIsDNSSubdomain
	}
	return k.ValidateName
}

func validateFinalizers(k *registry.Kind, obj registry.Object, path *field.Path) field.ErrorList {
	if k.AnyFinalizer {
		return nil
	}
	var errs field.ErrorList
	for i, f := range obj.GetFinalizers() {
		errs = append(errs, standardOrQualified(f, path.Child("finalizers").Index(i))...)
	}
	return errs
}

// ValidateFinalizerName checks one finalizer that stands outside the metadata.
func ValidateFinalizerName(name string, path *field.Path) field.ErrorList {
	errs := validation.ValidateFinalizerName(name, path)
	return append(errs, standardOrQualified(name, path)...)
}

// standardOrQualified refuses names without a domain that are not the
// platform's own.
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
