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

// Damage says how objects are told of that are stored and cannot be read, in the words
// of Kubernetes.
type Damage struct {
	// Named tells the key, and all objects of a list: whoever may delete such objects
	// has to know them. Else the first error is told.
	Named bool
	// Root is what keys begin with, without a slash at its end.
	Root string
}

// maxDamaged bounds the objects that the error of a list names.
const maxDamaged = 100

// detail is what is wrong.
func detail(e *storage.UnreadableError) string {
	if e.Undecodable {
		return fmt.Sprintf("object not decodable revision=%d: %v", e.Revision, e.Err)
	}
	return fmt.Sprintf("data from the storage is not transformable revision=0: %v", e.Err)
}

func corrupt(key string, e *storage.UnreadableError) error {
	return fmt.Errorf("StorageError: corrupt object, Code: 7, Key: %s, ResourceVersion: 0, AdditionalErrorMsg: %s", key, detail(e)) //nolint:staticcheck // the wording is the API's
}

// plain is an error as it is: of what does not decode there is no reason.
func plain(e *storage.UnreadableError, text string) error {
	if e.Undecodable {
		return Failed(text)
	}
	return apierrors.NewInternalError(errors.New(text))
}

// Unasked is the error of who was not let wait for what opens an object, or not long enough: nobody
// knows whether that is damaged. It is nil of others.
func Unasked(e *storage.UnreadableError) error {
	var status *apierrors.StatusError
	if errors.As(e.Err, &status) {
		return status
	}
	return nil
}

// OfObject is the error of reading or deleting one object.
func (d Damage) OfObject(e *storage.UnreadableError) error {
	if err := Unasked(e); err != nil {
		return err
	}
	if !d.Named {
		return plain(e, e.Error())
	}
	return apierrors.NewInternalError(corrupt(strings.TrimPrefix(e.Key, d.Root), e))
}

// OfWrite is the error of changing one object.
func (d Damage) OfWrite(e *storage.UnreadableError) error {
	if err := Unasked(e); err != nil {
		return err
	}
	if !d.Named {
		return plain(e, e.Error())
	}
	return plain(e, detail(e))
}

// Enough tells whether a list has to look for more damaged objects than so many.
func (d Damage) Enough(found int) bool { return !d.Named || found > maxDamaged }

// OfList is the error of a list that damaged objects are in.
func (d Damage) OfList(resource schema.GroupResource, damaged []*storage.UnreadableError) error {
	for _, e := range damaged {
		if err := Unasked(e); err != nil {
			return err
		}
	}
	if !d.Named {
		e := damaged[0]
		if e.Undecodable {
			return Failed(e.Error())
		}
		return apierrors.NewInternalError(fmt.Errorf("unable to transform key %q: %w", e.Key, e.Err))
	}
	details := &metav1.StatusDetails{Name: "list", Group: resource.Group, Kind: resource.Resource}
	for i, e := range damaged {
		if i == maxDamaged {
			details.Causes = append(details.Causes, metav1.StatusCause{Type: metav1.CauseTypeTooMany, Message: "too many errors, the list is truncated"})
			break
		}
		details.Causes = append(details.Causes, metav1.StatusCause{Type: metav1.CauseTypeUnexpectedServerResponse, Field: e.Key, Message: corrupt(e.Key, e).Error()})
	}
	return Error(http.StatusInternalServerError, metav1.StatusReasonStoreReadError, fmt.Sprintf("failed to read one or more %s from the storage", resource), details)
}
