package writes

import (
	"context"
	"errors"
	"fmt"
	"time"

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
	return w.createObject(ctx, r, r.Object, creation{})
}

// creation holds the options of a write that creates an object.
type creation struct {
	// ownershipRecorded means that the managedFields of the object are already complete.
	ownershipRecorded bool
	// byUpdate means that the write is an update or an apply of an absent object. Its
	// resourceVersion is ignored.
	byUpdate bool
}

// createObject creates obj. Create, Update and Patch share it.
func (w *Writer) createObject(ctx context.Context, req *Request, obj registry.Object, opts creation) (Result, error) {
	if err := req.checkCreation(obj); err != nil {
		return Result{}, err
	}
	attrs, err := w.mutateCreation(ctx, req, obj, opts.ownershipRecorded)
	if err != nil {
		return Result{}, err
	}
	if opts.byUpdate {
		if err := req.checkVersion(obj); err != nil {
			return Result{}, err
		}
	}
	w.stampCreation(req, obj)

	// Store the object. If its name is generated and taken, try other names.
	requestedName := attrs.Name
	generated := obj.GetName() == "" && obj.GetGenerateName() != ""
	for attempt := 1; ; attempt++ {
		candidate := obj
		if generated {
			candidate = obj.DeepCopyObject().(registry.Object)
			if req.Resource.Create.PrefixIsName {
				candidate.SetName(obj.GetGenerateName())
			} else {
				candidate.SetName(meta.GenerateName(obj.GetGenerateName()))
			}
		}
		attrs.Object = candidate
		attrs.Name = requestedName
		if requestedName == "" && !req.Collection {
			attrs.Name = candidate.GetName()
		}
		result, err := w.tryCreate(ctx, req, candidate, attrs, opts)
		switch {
		case !apierrors.IsAlreadyExists(err):
			return result, err
		case !generated || attempt == generatedAttempts:
			return result, w.alreadyExists(ctx, req, candidate)
		}
	}
}

// alreadyExists returns the error of a creation whose name is taken. If the existing object is
// being deleted, the message states that.
func (w *Writer) alreadyExists(ctx context.Context, r *Request, obj registry.Object) error {
	err := apierrors.NewAlreadyExists(r.Resource.GroupResource(), obj.GetName())
	if obj.GetGenerateName() != "" {
		err = apierrors.NewGenerateNameConflict(r.Resource.GroupResource(), obj.GetName(), 1)
	}
	if live, failed := w.readLive(
		ctx,
		r.ForObject(r.Resource, nil, r.Namespace, obj.GetName()),
		true,
	); failed == nil && live.obj.GetDeletionTimestamp() != nil {
		err.ErrStatus.Message = "object is being deleted: " + err.ErrStatus.Message
	}
	return err
}

// mutateCreation defaults an object, records its field ownership, and runs mutating admission.
// Admission sees neither the metadata that the server sets nor a generated name. Both steps see the
// status that the client sent, as in Kubernetes: a status that does not fit the schema leaves the
// object without managedFields.
func (w *Writer) mutateCreation(
	ctx context.Context,
	req *Request,
	obj registry.Object,
	ownershipRecorded bool,
) (*admission.Request, error) {
	var created metav1.Time
	if req.Patch != nil { // as in Kubernetes, admission sees the creationTimestamp of an apply
		created = obj.GetCreationTimestamp()
	}
	meta.SetServerFields(obj, "", created)
	obj.SetNamespace(req.objectNamespace())
	attrs := req.Admission(admission.Create, obj, nil)
	if req.Resource.Default != nil {
		req.Resource.Default(obj)
	}
	if req.Patch == nil {
		removeDuplicateOwners(ctx, obj, duplicateOwners)
	}
	if !ownershipRecorded {
		if err := w.recordOwnership(ctx, req, nil, obj); err != nil {
			return nil, err
		}
	}
	typeErr := req.checkType(obj) // before webhooks: their response always has the type of the resource
	if err := w.runMutation(ctx, req, obj, attrs); err != nil {
		return nil, err
	}
	if err := req.checkCreation(obj); err != nil {
		return nil, err
	}
	return attrs, typeErr
}

// creationVersion returns the resourceVersion that the client sent. The response to a dry run shows
// it. It rejects all other creations with a resourceVersion other than 0. As in Kubernetes, a value
// that is not a number counts as none.
func (r *Request) creationVersion(obj registry.Object, opts creation) (int64, error) {
	version, err := codec.ParseVersion(obj.GetResourceVersion())
	if !r.DryRun && !opts.byUpdate && err == nil && version > 0 {
		return 0, apierrors.NewBadRequest("resourceVersion should not be set on objects to be created")
	}
	return version, nil
}

// stampCreation sets the metadata that the server owns.
func (w *Writer) stampCreation(r *Request, obj registry.Object) {
	meta.SetServerFields(obj, newUID(), metav1.Time{Time: w.Now().UTC().Truncate(time.Second)})
	r.resetForCreate(obj)
	if r.Resource.Update.Generation {
		obj.SetGeneration(1)
	}
}

// resetForCreate clears the fields that a client cannot set on a new object.
func (r *Request) resetForCreate(obj registry.Object) {
	obj.SetNamespace(r.objectNamespace())
	if r.Resource.HasStatus() && !r.Resource.Create.KeepStatus {
		r.Resource.Parts.CopyStatus(obj, nil)
	}
}

// tryCreate completes, validates and stores an object that has its final name.
func (w *Writer) tryCreate(
	ctx context.Context,
	req *Request,
	obj registry.Object,
	attrs *admission.Request,
	opts creation,
) (Result, error) {
	// 1. Complete the object.
	req.prepareCreate(ctx, obj, attrs.User)
	if err := w.completeObject(req, obj, nil); err != nil {
		return Result{}, err
	}
	text, err := req.Resource.Coder.ServedJSON(obj)
	if err != nil {
		return Result{}, fmt.Errorf("encode: %w", err)
	}

	// 2. Allocate values, validate, and run validating admission.
	reservation, err := w.allocateValues(ctx, req, obj, nil)
	if err != nil {
		return Result{}, err
	}
	if errs := w.validateCreate(ctx, req, obj, text); len(errs) > 0 {
		reservation.Rollback(ctx)
		return Result{}, status.Invalid(req.Resource.GroupKind(), obj.GetName(), errs)
	}
	req.addWarnings(ctx, obj)
	reservation, err = w.admitComplete(ctx, attrs, reservation)
	if err != nil {
		return Result{}, err
	}

	// 3. Store the object. As in Kubernetes, the check of the version comes after admission.
	version, err := req.creationVersion(obj, opts)
	if err != nil {
		reservation.Rollback(ctx)
		return Result{}, err
	}
	value, err := req.encodeStored(ctx, obj, text)
	if err != nil {
		reservation.Rollback(ctx)
		return Result{}, fmt.Errorf("encode: %w", err)
	}
	if req.DryRun {
		reservation.Rollback(ctx)
		if err := w.checkAbsent(ctx, req, obj.GetName()); err != nil {
			return Result{}, err
		}
		return Result{Item: codec.Item{Stored: value, Revision: version}, Created: true}, nil
	}
	return w.storeCreated(ctx, req, obj, value, reservation)
}

// prepareCreate calls the functions of the kind that run before validation.
func (r *Request) prepareCreate(ctx context.Context, obj registry.Object, user *request.User) {
	if early := r.Resource.Create.EarlyWarnings; early != nil {
		for _, text := range early(obj) {
			request.Warn(ctx, text)
		}
	}
	if r.Resource.Create.Prepare != nil {
		r.Resource.Create.Prepare(obj)
	}
	if r.Resource.Create.RecordCreator != nil {
		r.Resource.Create.RecordCreator(obj, requesterOf(user))
	}
}

// checkAbsent returns the error that a creation would get from the store. It reads the store,
// because the cache may not have the last write of the client yet.
func (w *Writer) checkAbsent(ctx context.Context, r *Request, name string) error {
	ref := refOf(r.Resource, name)
	_, _, err := w.Store.Get(ctx, r.Resource.Key(r.Namespace, name), 0)
	if err == nil {
		return apierrors.NewAlreadyExists(ref.Resource, ref.Name)
	}
	if !errors.Is(err, storage.ErrNotFound) {
		return ref.Translate(err)
	}
	return w.checkDefined(ctx, r.Resource)
}

// storeCreated stores a new object and settles its reservation.
func (w *Writer) storeCreated(
	ctx context.Context,
	req *Request,
	obj registry.Object,
	value []byte,
	reservation admission.Reservation,
) (Result, error) {
	key := req.Resource.Key(req.Namespace, obj.GetName())
	value, revision, err := w.putValue(ctx, req, obj, value, func(ctx context.Context, value []byte) (int64, error) {
		return w.Store.Create(ctx, key, value, w.writeOptions(req, req.Resource.Preconditions))
	})
	settleReservation(ctx, reservation, err)
	var precondition *storage.PreconditionError
	if len(req.ExtraPreconditions) == 0 && errors.As(err, &precondition) {
		return Result{}, apiset.ErrGone // the definition of the kind was deleted
	}
	if err != nil {
		return Result{}, refOf(req.Resource, obj.GetName()).Translate(err)
	}
	w.reportWritten(req, revision)
	w.awaitSettled(ctx, req, revision)
	return Result{Item: codec.Item{Stored: value, Revision: revision}, Created: true}, nil
}

// checkDefined checks the preconditions of a creation that is not executed (a dry run).
func (w *Writer) checkDefined(ctx context.Context, resource *apiset.Resource) error {
	for _, p := range resource.Preconditions {
		stored, _, err := w.Store.Get(ctx, p.Key, 0)
		if errors.Is(err, storage.ErrNotFound) || err == nil && stored.CreateRevision != p.CreateRevision {
			return apiset.ErrGone
		}
		if corruption := new(storage.CorruptObjectError); err != nil && !errors.As(err, &corruption) {
			return status.Ref{}.Translate(err)
		}
	}
	return nil
}

// requesterOf returns the user in the form that a kind may record.
func requesterOf(user *request.User) registry.Requester {
	if user == nil {
		return registry.Requester{}
	}
	return registry.Requester{Name: user.Name, UID: user.UID, Groups: user.Groups, Extra: user.Extra}
}
