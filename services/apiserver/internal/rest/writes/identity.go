package writes

import (
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/status"
)

// expectedUID returns the uid in the body of an update, which must match the stored object. It is
// empty for patches, where a uid is a change of the object.
func (r *Request) expectedUID() types.UID {
	if r.Object == nil || r.Patch != nil {
		return ""
	}
	return r.Object.GetUID()
}

// uidConflict returns the error of an update whose uid differs from that of the stored object. have
// is empty if there is no object. The text has the form of Kubernetes' storage errors, in which dry
// runs leave out the root of the key.
func (r *Request) uidConflict(want, have types.UID) error {
	key := r.key()
	if at := strings.Index(key, "/"+r.Kind.Stored.Prefix+"/"); r.DryRun && at > 0 {
		key = key[at:]
	}
	return apierrors.NewConflict(r.Kind.GroupResource(), r.Name, fmt.Errorf(
		"StorageError: invalid object, Code: 4, Key: %s, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: %v, UID in object meta: %v", key, want, have))
}

// checkVersion rejects a resourceVersion that is not an unsigned integer.
func (r *Request) checkVersion(obj registry.Object) error {
	version := obj.GetResourceVersion()
	if _, err := codec.ParseVersion(version); err == nil {
		return nil
	}
	return status.Invalid(r.Kind.GroupKind(), r.Name, field.ErrorList{
		field.Invalid(field.NewPath("metadata", "resourceVersion"), version, "must be an unsigned integer"),
	})
}
