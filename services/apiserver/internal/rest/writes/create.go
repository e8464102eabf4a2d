package writes

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/meta"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/status"
	"binnacle/services/apiserver/internal/storage"
)

// generatedAttempts is how many generated names are tried.
const generatedAttempts = 8

// Create creates Request.Object. It generates a name if only a name prefix is given.
func (w *Writer) Create(ctx context.Context, r *Request) (Result, error) {
	return w.create(ctx, r, r.Object, creation{})
}

// creation holds the properties of a write that creates an object.
type creation struct {
	// owned means that the field ownership is recorded already.
	owned bool
	// absent means that the write is an update or an apply of an absent object. Its
	// resourceVersion is ignored.
	absent bool
}

// create creates obj. Create, Update and Patch share it.
func (w *Writer) create(ctx context.Context, r *Request, obj registry.Object, how creation) (Result, error) {
	if err := r.creationFits(obj); err != nil {
		return Result{}, err
	}
	if how.absent {
		if err := r.checkVersion(obj); err != nil {
			return Result{}, err
		}
	}
	ask, err := w.mutateCreation(ctx, r, obj, how.owned)
	if err != nil {
		return Result{}, err
	}
	w.stampCreation(r, obj)
	named := ask.Name
	generated := obj.GetName() == "" && obj.GetGenerateName() != ""
	for attempt := 1; ; attempt++ {
		try := obj
		if generated {
			try = obj.DeepCopyObject().(registry.Object)
			try.SetName(meta.GenerateName(obj.GetGenerateName()))
		}
		ask.Object = try
		if ask.Name = named; named == "" && !r.Collection {
			ask.Name = try.GetName()
		}
		res, err := w.tryCreate(ctx, r, try, ask, how)
		if !generated || attempt == generatedAttempts || !apierrors.IsAlreadyExists(err) {
			if apierrors.IsAlreadyExists(err) {
				err = w.alreadyExists(ctx, r, try)
			}
			return res, err
		}
	}
}

// alreadyExists returns the error of a creation whose name is taken. If the existing object is
// being deleted, the message states that.
func (w *Writer) alreadyExists(ctx context.Context, r *Request, obj registry.Object) error {
	err := apierrors.NewAlreadyExists(r.Kind.GroupResource(), obj.GetName())
	if obj.GetGenerateName() != "" {
		err = apierrors.NewGenerateNameConflict(r.Kind.GroupResource(), obj.GetName(), 1)
	}
	if l, failed := w.read(ctx, r.On(r.Kind, nil, r.Namespace, obj.GetName()), true); failed == nil && l.obj.GetDeletionTimestamp() != nil {
		err.ErrStatus.Message = "object is being deleted: " + err.ErrStatus.Message
	}
	return err
}

// mutateCreation defaults an object, records its field ownership, and runs mutating admission.
// Admission sees neither the metadata that the server sets nor a generated name. Both steps see the
// status that the client sent, as in Kubernetes: a status that does not fit the schema leaves the
// object without managedFields.
func (w *Writer) mutateCreation(ctx context.Context, r *Request, obj registry.Object, owned bool) (*admission.Request, error) {
	meta.SetServerFields(obj, "", metav1.Time{})
	obj.SetNamespace(r.place())
	ask := r.Admission(admission.Create, obj, nil)
	if r.Kind.Default != nil {
		r.Kind.Default(obj)
	}
	if r.Patch == nil {
		uniqueOwners(ctx, obj, false)
	}
	if !owned {
		if err := w.own(ctx, r, nil, obj); err != nil {
			return nil, err
		}
	}
	if err := w.mutate(ctx, r, obj, ask); err != nil {
		return nil, err
	}
	return ask, r.creationFits(obj)
}

// creationVersion returns the resourceVersion that the client sent, which the response to a dry run
// shows. Other creations with a resourceVersion other than 0 are rejected. The check comes after
// admission. As in Kubernetes, a value that is not a number counts as none.
func (r *Request) creationVersion(obj registry.Object, how creation) (int64, error) {
	version, err := codec.ParseVersion(obj.GetResourceVersion())
	if !r.DryRun && !how.absent && err == nil && version > 0 {
		return 0, apierrors.NewBadRequest("resourceVersion should not be set on objects to be created")
	}
	return version, nil
}

// stampCreation sets the metadata that the server owns.
func (w *Writer) stampCreation(r *Request, obj registry.Object) {
	meta.SetServerFields(obj, newUID(), metav1.Time{Time: w.Now().UTC().Truncate(second)})
	r.reset(obj)
	if r.Kind.Update.Generation {
		obj.SetGeneration(1)
	}
}

// reset clears the fields that a client cannot set on a new object.
func (r *Request) reset(obj registry.Object) {
	obj.SetNamespace(r.place())
	if r.Kind.HasStatus() && !r.Kind.Create.KeepStatus {
		r.Kind.Parts.CopyStatus(obj, nil)
	}
}

func (w *Writer) tryCreate(ctx context.Context, r *Request, obj registry.Object, ask *admission.Request, how creation) (Result, error) {
	if early := r.Kind.Create.EarlyWarnings; early != nil {
		for _, text := range early(obj) {
			request.Warn(ctx, text)
		}
	}
	if r.Kind.Create.Prepare != nil {
		r.Kind.Create.Prepare(obj)
	}
	if r.Kind.Create.Stamp != nil {
		r.Kind.Create.Stamp(obj, requester(ask.User))
	}
	if err := w.complete(r, obj, nil); err != nil {
		return Result{}, err
	}
	if err := r.checkType(obj); err != nil {
		return Result{}, err
	}
	text, err := r.Kind.Coder.Text(obj)
	if err != nil {
		return Result{}, fmt.Errorf("encode: %w", err)
	}
	if errs := w.validateCreate(ctx, r, obj, text); len(errs) > 0 {
		return Result{}, status.Invalid(r.Kind.GroupKind(), obj.GetName(), errs)
	}
	r.warn(ctx, obj)
	claim, err := w.allocate(ctx, r, obj, nil)
	if err != nil {
		return Result{}, err
	}
	if claim, err = w.admit(ctx, ask, claim); err != nil {
		return Result{}, err
	}
	version, err := r.creationVersion(obj, how)
	if err != nil {
		claim.Drop(ctx)
		return Result{}, err
	}
	value, err := r.stored(ctx, obj, text)
	if err != nil {
		claim.Drop(ctx)
		return Result{}, fmt.Errorf("encode: %w", err)
	}
	key := r.Kind.Key(r.Namespace, obj.GetName())
	ref := refOf(r.Kind, obj.GetName())
	if r.DryRun {
		claim.Drop(ctx)
		// The cache may not have the last write of the client yet.
		if _, _, err := w.Store.Get(ctx, key, 0); err == nil {
			return Result{}, apierrors.NewAlreadyExists(ref.Resource, ref.Name)
		} else if !errors.Is(err, storage.ErrNotFound) {
			return Result{}, ref.Translate(err)
		}
		if err := w.defined(ctx, r.Kind); err != nil {
			return Result{}, err
		}
		return Result{Item: codec.Item{Stored: value, Revision: version}, Created: true}, nil
	}
	value, rev, err := w.put(ctx, r, obj, value, func(ctx context.Context, value []byte) (int64, error) {
		return w.Store.Create(ctx, key, value, w.options(r, r.Kind.While))
	})
	settleClaim(ctx, claim, err)
	if precondition := new(storage.PreconditionError); len(r.While) == 0 && errors.As(err, &precondition) {
		return Result{}, apiset.ErrGone
	}
	if err != nil {
		return Result{}, ref.Translate(err)
	}
	w.note(r, rev)
	w.awaitSettled(ctx, r, rev)
	return Result{Item: codec.Item{Stored: value, Revision: rev}, Created: true}, nil
}

// defined checks the preconditions of a creation that is not executed (a dry run).
func (w *Writer) defined(ctx context.Context, k *apiset.Resource) error {
	for _, p := range k.While {
		kv, _, err := w.Store.Get(ctx, p.Key, 0)
		if errors.Is(err, storage.ErrNotFound) || err == nil && kv.CreateRevision != p.CreateRevision {
			return apiset.ErrGone
		}
		if unreadable := new(storage.UnreadableError); err != nil && !errors.As(err, &unreadable) {
			return status.Ref{}.Translate(err)
		}
	}
	return nil
}

// requester returns the user in the form that a kind may record.
func requester(u *request.User) registry.Requester {
	if u == nil {
		return registry.Requester{}
	}
	return registry.Requester{Name: u.Name, UID: u.UID, Groups: u.Groups, Extra: u.Extra}
}
