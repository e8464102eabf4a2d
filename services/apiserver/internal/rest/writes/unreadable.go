package writes

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/security/authz"
	"binnacle/services/apiserver/internal/status"
	"binnacle/services/apiserver/internal/storage"
)

// The delete option, and the verb that it additionally requires.
const (
	unsafeOption = "ignoreStoreReadErrorWithClusterBreakingPotential"
	unsafeVerb   = "unsafe-delete-ignore-read-errors"
)

// DeleteUnreadable removes an object that cannot be read. It skips admission, which would have no
// object to check, and ignores finalizers. It requires a permission of its own. It does not remove
// a readable object.
func (w *Writer) DeleteUnreadable(ctx context.Context, r *Request) error {
	if err := w.mayDeleteUnreadable(ctx, r); err != nil {
		return err
	}
	for range maxAttempts {
		_, err := w.read(ctx, r, true)
		var unreadable *storage.UnreadableError
		if err == nil || errors.Is(err, storage.ErrNotFound) {
			return notUnreadable(r)
		}
		if !errors.As(err, &unreadable) {
			return r.ref().Translate(err)
		}
		// A request that ended before the object was decrypted does not prove that the object is
		// damaged.
		if err := cmp.Or(status.Unasked(unreadable), ctx.Err()); err != nil {
			return err
		}
		answered := request.Suspend(ctx)
		revision, err := w.Store.Delete(ctx, r.key(), unreadable.Revision)
		answered()
		var conflict *storage.ConflictError
		switch {
		case err == nil:
			w.Logger.Warn("an object that cannot be read was deleted", "key", r.key(), "user", r.User.Name, "error", unreadable.Err)
			w.note(r, revision)
			return nil
		case !errors.As(err, &conflict): // otherwise a concurrent write: try again
			return r.ref().Translate(err)
		}
	}
	return apierrors.NewConflict(r.Kind.GroupResource(), r.Name, status.ErrModified)
}

func notUnreadable(r *Request) error {
	gr := r.Kind.GroupResource()
	return status.Invalid(schema.GroupKind{Group: gr.Group, Kind: gr.Resource}, r.Name, field.ErrorList{
		field.Invalid(field.NewPath(unsafeOption), true, "is exclusively used to delete corrupt object(s), try again by removing this option"),
	})
}

func (w *Writer) mayDeleteUnreadable(ctx context.Context, r *Request) error {
	k := r.Kind
	d, reason, err := w.Authorizer.Authorize(ctx, &authz.Attributes{
		User: r.User, Verb: unsafeVerb, Resource: true, Group: k.Group, Version: k.Version, ResourceName: k.Resource,
		Namespace: r.Namespace, Name: r.Name,
	})
	switch {
	case d == authz.Allow:
		return nil
	case err != nil:
		w.Logger.Warn("authorization failed", "resource", k.Resource, "namespace", r.Namespace, "name", r.Name, "error", err)
		return apierrors.NewInternalError(fmt.Errorf("error occurred while checking permission for %q, please try again: %w", unsafeVerb, err))
	}
	return apierrors.NewForbidden(k.GroupResource(), r.Name, fmt.Errorf("not permitted to do %q, reason: %s", unsafeVerb, reason))
}

// IgnoresReadErrors reports whether the options of a deletion allow removing an unreadable object.
func IgnoresReadErrors(o *metav1.DeleteOptions) bool {
	return o.IgnoreStoreReadErrorWithClusterBreakingPotential != nil && *o.IgnoreStoreReadErrorWithClusterBreakingPotential
}

// RefuseForCollections returns the error for options that only a deletion of a single object may
// have.
func RefuseForCollections() *field.Error {
	return field.Invalid(field.NewPath(unsafeOption), true, "is not allowed with DELETECOLLECTION, try again after removing the option")
}
