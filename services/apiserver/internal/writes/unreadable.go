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

	"binnacle/services/apiserver/internal/authz"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/status"
	"binnacle/services/apiserver/internal/storage"
)

// The option, and the verb that its users need besides.
const (
	unsafeOption = "ignoreStoreReadErrorWithClusterBreakingPotential"
	unsafeVerb   = "unsafe-delete-ignore-read-errors"
)

// DeleteUnreadable removes an object that cannot be read, whatever it was: without
// admission, which would have nothing to look at, without heed of finalizers. Who does
// so needs a permission of its own. An object that can be read is not removed.
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
		// Who left before it was opened has not found it damaged either.
		if err := cmp.Or(status.Unasked(unreadable), ctx.Err()); err != nil {
			return err
		}
		answered := request.OnlyWaits(ctx)
		revision, err := w.Store.Delete(ctx, r.key(), unreadable.Revision)
		answered()
		var conflict *storage.ConflictError
		switch {
		case err == nil:
			w.Logger.Warn("an object that cannot be read was deleted", "key", r.key(), "user", r.User.Name, "error", unreadable.Err)
			w.note(r, revision)
			return nil
		case !errors.As(err, &conflict): // else somebody wrote it meanwhile
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

// IgnoresReadErrors tells whether the options of a deletion are for what cannot be read.
func IgnoresReadErrors(o *metav1.DeleteOptions) bool {
	return o.IgnoreStoreReadErrorWithClusterBreakingPotential != nil && *o.IgnoreStoreReadErrorWithClusterBreakingPotential
}

// RefuseForCollections is the error of options that are for single objects.
func RefuseForCollections() *field.Error {
	return field.Invalid(field.NewPath(unsafeOption), true, "is not allowed with DELETECOLLECTION, try again after removing the option")
}
