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
	// manyOwners are so many that what is wrong with them is put into words once, for all that
	// it holds for.
	manyOwners = 64
	// wrongOwners is for how many sorts that is remembered.
	wrongOwners = 1024
	// shownOwners are shown where all are wrong together: more text than anybody is told, which is
	// made for each error.
	shownOwners = 1024
)

// ValidateObject is validation.ValidateObjectMetaAccessor, which takes a hundred megabytes
// where an object has a hundred thousand owners that are no owners.
func ValidateObject(obj metav1.Object, namespaced bool, name validation.ValidateNameFunc, at *field.Path) field.ErrorList {
	owners := obj.GetOwnerReferences()
	if len(owners) <= manyOwners {
		return validation.ValidateObjectMetaAccessor(obj, namespaced, name, at)
	}
	errs := validation.ValidateObjectMetaAccessor(ownerless{obj}, namespaced, name, at)
	wrong := validateOwners(owners, at.Child("ownerReferences"))
	if len(wrong) == 0 {
		return errs
	}
	finalizers, managed := at.Child("finalizers").String(), at.Child("managedFields").String()
	after := slices.IndexFunc(errs, func(e *field.Error) bool {
		return strings.HasPrefix(e.Field, finalizers) || strings.HasPrefix(e.Field, managed)
	})
	if after < 0 {
		after = len(errs)
	}
	return slices.Concat(errs[:after], wrong, errs[after:])
}

// ownerless is an object without its owners.
type ownerless struct{ metav1.Object }

// GetOwnerReferences implements metav1.Object.
func (ownerless) GetOwnerReferences() []metav1.OwnerReference { return nil }

// sortOfOwner is what errors of an owner reference tell of it.
type sortOfOwner struct {
	apiVersion, kind  string
	named, identified bool
}

// validateOwners is validation.ValidateOwnerReferences. What is wrong with several is one error,
// several times.
func validateOwners(owners []metav1.OwnerReference, at *field.Path) (errs field.ErrorList) {
	known := map[sortOfOwner]field.ErrorList{}
	controller := ""
	for i, o := range owners {
		sort := sortOfOwner{o.APIVersion, o.Kind, o.Name != "", o.UID != ""}
		wrong, ok := known[sort]
		if !ok {
			wrong = validation.ValidateOwnerReferences(owners[i:i+1], at)
			if len(wrong) > 0 && len(known) < wrongOwners && !slices.ContainsFunc(wrong, ofAll) {
				known[sort] = wrong
			}
		}
		errs = append(errs, wrong...)
		if o.Controller == nil || !*o.Controller {
			continue
		}
		this := o.Kind + "/" + o.Name
		if controller == "" {
			controller = this
			continue
		}
		errs = append(errs, field.Invalid(at, owners[:min(len(owners), shownOwners)], fmt.Sprintf(`Only one reference can have Controller set to true. Found "true" in references for %s and %s`, controller, this)))
	}
	return errs
}

// ofAll tells whether an error shows more of an owner than its sort.
func ofAll(e *field.Error) bool {
	_, is := e.BadValue.(metav1.OwnerReference)
	return is
}
