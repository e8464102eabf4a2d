package status

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/storage"
)

// CorruptObjects defines the errors about stored objects that cannot be read, with the texts of
// Kubernetes.
type CorruptObjects struct {
	// Named includes the keys in errors, for all unreadable objects of a list. It is needed where
	// clients may delete such objects. Otherwise a list reports only the first error.
	Named bool
	// Root is the prefix of all keys, without a trailing slash.
	Root string
}

// maxListedCorrupt is the maximum number of objects that the error of a list names.
const maxListedCorrupt = 100

// corruptionDetail returns why an object is unreadable, in the words of Kubernetes.
func corruptionDetail(corrupt *storage.CorruptObjectError) string {
	if corrupt.Undecodable {
		return fmt.Sprintf("object not decodable revision=%d: %v", corrupt.Revision, corrupt.Err)
	}
	return fmt.Sprintf("data from the storage is not transformable revision=0: %v", corrupt.Err)
}

// corruptObjectError returns the error of Kubernetes for an unreadable object with a key.
func corruptObjectError(key string, e *storage.CorruptObjectError) error {
	return fmt.Errorf("StorageError: corrupt object, Code: 7, Key: %s, ResourceVersion: 0, AdditionalErrorMsg: %s",
		key, corruptionDetail(e)) //nolint:staticcheck // the wording is the API's
}

// internalError returns a 500 error with the given text. As in Kubernetes, it has no reason if the
// object cannot be decoded.
func internalError(e *storage.CorruptObjectError, text string) error {
	if e.Undecodable {
		return Failed(text)
	}
	return apierrors.NewInternalError(errors.New(text))
}

// DecryptionRejected returns the error of a request that a limit kept from decrypting an object.
// The object may be intact. It returns nil for all other errors.
func DecryptionRejected(e *storage.CorruptObjectError) error {
	var status *apierrors.StatusError
	if errors.As(e.Err, &status) {
		return status
	}
	return nil
}

// OfObject returns the error of reading or deleting one object.
func (c CorruptObjects) OfObject(corrupt *storage.CorruptObjectError) error {
	if err := DecryptionRejected(corrupt); err != nil {
		return err
	}
	if !c.Named {
		return internalError(corrupt, corrupt.Error())
	}
	return apierrors.NewInternalError(corruptObjectError(strings.TrimPrefix(corrupt.Key, c.Root), corrupt))
}

// OfWrite returns the error of changing one object.
func (c CorruptObjects) OfWrite(corrupt *storage.CorruptObjectError) error {
	if err := DecryptionRejected(corrupt); err != nil {
		return err
	}
	if !c.Named {
		return internalError(corrupt, corrupt.Error())
	}
	return internalError(corrupt, corruptionDetail(corrupt))
}

// CanStop reports whether a list with the given number of damaged objects can stop looking for
// more.
func (c CorruptObjects) CanStop(found int) bool { return !c.Named || found > maxListedCorrupt }

// OfList returns the error of a list that contains damaged objects.
func (c CorruptObjects) OfList(resource schema.GroupResource, damaged []*storage.CorruptObjectError) error {
	for _, corrupt := range damaged {
		if err := DecryptionRejected(corrupt); err != nil {
			return err
		}
	}
	if !c.Named {
		corrupt := damaged[0]
		if corrupt.Undecodable {
			return Failed(corrupt.Error())
		}
		return apierrors.NewInternalError(fmt.Errorf("unable to transform key %q: %w", corrupt.Key, corrupt.Err))
	}
	details := &metav1.StatusDetails{Name: "list", Group: resource.Group, Kind: resource.Resource}
	for i, corrupt := range damaged {
		if i == maxListedCorrupt {
			details.Causes = append(details.Causes, metav1.StatusCause{
				Type:    metav1.CauseTypeTooMany,
				Message: "too many errors, the list is truncated",
			})
			break
		}
		details.Causes = append(details.Causes, metav1.StatusCause{
			Type:    metav1.CauseTypeUnexpectedServerResponse,
			Field:   corrupt.Key,
			Message: corruptObjectError(corrupt.Key, corrupt).Error(),
		})
	}
	return Error(http.StatusInternalServerError, metav1.StatusReasonStoreReadError,
		fmt.Sprintf("failed to read one or more %s from the storage", resource), details)
}
