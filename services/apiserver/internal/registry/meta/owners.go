package meta

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	// bulkOwners is the number of owner references above which an error is formatted once for all
	// references that it applies to.
	bulkOwners = 64
	// maxCachedErrors is the maximum number of owner references whose errors are cached, by
	// ownerErrorKey.
	maxCachedErrors = 1024
	// maxShownOwners is the maximum number of references in the error about all of them. Its text
	// exceeds the limit of a response, and it is formatted for each error.
	maxShownOwners = 1024
)

// ValidateObject returns the errors of validation.ValidateObjectMetaAccessor with bounded memory
// use. The latter takes a hundred megabytes for an object with a hundred thousand invalid owner
// references.
func ValidateObject(obj metav1.Object, namespaced bool, name validation.ValidateNameFunc, at *field.Path) field.ErrorList {
	owners := obj.GetOwnerReferences()
	if len(owners) <= bulkOwners {
		return validation.ValidateObjectMetaAccessor(obj, namespaced, name, at)
	}
	errs := validation.ValidateObjectMetaAccessor(withoutOwners{obj}, namespaced, name, at)
	ownerErrs := validateOwners(owners, at.Child("ownerReferences"))
	if len(ownerErrs) == 0 {
		return errs
	}
	finalizers := at.Child("finalizers").String()
	managed := at.Child("managedFields").String()
	// The errors of owner references precede the errors of finalizers and managed fields.
	after := slices.IndexFunc(errs, func(e *field.Error) bool {
		return strings.HasPrefix(e.Field, finalizers) || strings.HasPrefix(e.Field, managed)
	})
	if after < 0 {
		after = len(errs)
	}
	return slices.Concat(errs[:after], ownerErrs, errs[after:])
}

// withoutOwners is an object without owner references.
type withoutOwners struct{ metav1.Object }

// GetOwnerReferences implements metav1.Object.
func (withoutOwners) GetOwnerReferences() []metav1.OwnerReference { return nil }

// ownerErrorKey identifies owner references that have the same errors: it holds the parts of a
// reference that determine the text of errors.
type ownerErrorKey struct {
	apiVersion, kind string
	hasName, hasUID  bool
}

// validateOwners returns the errors of validation.ValidateOwnerReferences. References with the same
// ownerErrorKey share one error.
func validateOwners(owners []metav1.OwnerReference, at *field.Path) (errs field.ErrorList) {
	known := map[ownerErrorKey]field.ErrorList{}
	controller := ""
	for i, ownerReference := range owners {
		key := ownerErrorKey{apiVersion: ownerReference.APIVersion, kind: ownerReference.Kind, hasName: ownerReference.Name != "", hasUID: ownerReference.UID != ""}
		ownerErrs, ok := known[key]
		if !ok {
			ownerErrs = validation.ValidateOwnerReferences(owners[i:i+1], at)
			if len(ownerErrs) > 0 && len(known) < maxCachedErrors && !slices.ContainsFunc(ownerErrs, showsOwner) {
				known[key] = ownerErrs
			}
		}
		errs = append(errs, ownerErrs...)
		if ownerReference.Controller == nil || !*ownerReference.Controller {
			continue
		}
		owner := ownerReference.Kind + "/" + ownerReference.Name
		if controller == "" {
			controller = owner
			continue
		}
		errs = append(errs, field.Invalid(at, owners[:min(len(owners), maxShownOwners)], fmt.Sprintf(
			`Only one reference can have Controller set to true. Found "true" in references for %s and %s`, controller, owner)))
	}
	return errs
}

// showsOwner reports whether an error contains the whole owner reference.
func showsOwner(e *field.Error) bool {
	_, is := e.BadValue.(metav1.OwnerReference)
	return is
}
