package writes

import (
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/status"
	"binnacle/services/apiserver/internal/storage"
)

// toAPIError converts an error of the store in a write to an API error.
func (w *Writer) toAPIError(r *Request, operation admission.Operation, err error) error {
	var corruption *storage.CorruptObjectError
	uid := r.expectedUID()
	switch {
	case uid != "" && errors.Is(err, storage.ErrNotFound):
		return r.uidConflict(uid, "")
	case !errors.As(err, &corruption):
		return r.objectRef().Translate(err)
	case operation == admission.Delete:
		return w.CorruptObjects.OfObject(corruption)
	}
	return w.CorruptObjects.OfWrite(corruption)
}

// errOtherUID returns the error of a write whose uid differs from the uid of the stored object.
func errOtherUID(expected, actual types.UID) error {
	//nolint:staticcheck // the wording is the API's
	return fmt.Errorf("Precondition failed: UID in precondition: %v, UID in object meta: %v", expected, actual)
}

// expectedUID returns the uid in the body of an update, which must match the stored object. It is
// empty for patches, where a uid is a change of the object.
func (r *Request) expectedUID() types.UID {
	if r.Object == nil || r.Patch != nil {
		return ""
	}
	return r.Object.GetUID()
}

// uidConflict returns the error of an update whose uid differs from the uid of the stored object.
// stored is empty if there is no object. The text is that of Kubernetes' storage errors. For a dry
// run, it leaves out the root of the key.
func (r *Request) uidConflict(expected, stored types.UID) error {
	key := r.objectKey()
	if rootLength := strings.Index(key, "/"+r.Resource.Stored.Prefix+"/"); r.DryRun && rootLength > 0 {
		key = key[rootLength:]
	}
	return apierrors.NewConflict(r.Resource.GroupResource(), r.Name, fmt.Errorf(
		"StorageError: invalid object, Code: 4, Key: %s, ResourceVersion: 0, "+
			"AdditionalErrorMsg: Precondition failed: UID in precondition: %v, UID in object meta: %v",
		key, expected, stored))
}

// checkVersion rejects a resourceVersion that is not an unsigned integer.
func (r *Request) checkVersion(obj registry.Object) error {
	version := obj.GetResourceVersion()
	if _, err := codec.ParseVersion(version); err == nil {
		return nil
	}
	return status.Invalid(r.Resource.GroupKind(), r.Name, field.ErrorList{
		field.Invalid(field.NewPath("metadata", "resourceVersion"), version, "must be an unsigned integer"),
	})
}
