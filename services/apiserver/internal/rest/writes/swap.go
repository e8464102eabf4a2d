package writes

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/codec/doccheck"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/security/audit"
	"binnacle/services/apiserver/internal/status"
	"binnacle/services/apiserver/internal/storage"
)

// liveObject is the state of an object that a write starts from.
type liveObject struct {
	stored storage.KeyValue
	obj    registry.Object
	// text is the served document of an object without a Go type.
	text []byte
	// confirmed reports whether the state comes from the store rather than the cache.
	confirmed bool
}

// minCounted is the minimum size in bytes of a stored value whose JSON values are counted. The work
// on a smaller one is never large.
const minCounted = 8 << 10

// waitForWork waits until work on the object may start. Even a small change of a large object is
// large work.
func (live *liveObject) waitForWork(ctx context.Context, r *Request) error {
	size := len(live.stored.Value)
	if size >= minCounted && size < request.LargeBody {
		if values, ok := r.Resource.Coder.Values(live.stored.Value); ok {
			size = request.PerValue * values
		} else {
			size = request.WeightOfJSON(live.stored.Value)
		}
	}
	return request.Estimate(ctx, max(size, len(live.stored.Value)))
}

// maxAttempts is how many write conflicts an operation retries. Up to that many concurrent writers
// of one object all succeed.
const maxAttempts = 100

// readLive returns the state that a write starts from: from the cache, which is usually current, or
// from the store if confirmed is set or the cache has no readable entry.
func (w *Writer) readLive(ctx context.Context, req *Request, confirmed bool) (*liveObject, error) {
	entry, ok := req.Resource.Store.Get(req.objectKey())
	if ok && entry.Corrupt() == nil {
		// Wait before the value is copied, so that waiting requests hold no copies.
		if err := request.Estimate(ctx, entry.Size()); err != nil {
			return nil, err
		}
		if !confirmed {
			live := &liveObject{
				stored: storage.KeyValue{Key: entry.Key(), Value: entry.Stored(), ModRevision: entry.Revision, CreateRevision: entry.CreateRevision},
			}
			return live, live.decodeValue(ctx, req)
		}
	}
	stored, _, err := w.Store.Get(ctx, req.objectKey(), 0)
	if err != nil {
		return nil, err
	}
	if err := req.Resource.Store.Entry(stored).Corrupt(); err != nil {
		return nil, err
	}
	live := &liveObject{stored: stored, confirmed: true}
	return live, live.decodeValue(ctx, req)
}

// decodeValue decodes the value. It waits until work on the object may start.
func (live *liveObject) decodeValue(ctx context.Context, req *Request) (err error) {
	if err := live.stored.Corrupt(); err != nil {
		return err
	}
	if err := live.waitForWork(ctx, req); err != nil {
		return err
	}
	defer audit.FromContext(ctx).StartTimer(audit.Decoding).Stop()
	live.obj, live.text, err = req.Resource.Coder.DecodeWithJSON(
		ctx,
		codec.Item{Stored: req.withoutLazyField(live.stored.Value), Revision: live.stored.ModRevision},
	)
	if undecodable := new(codec.UndecodableError); errors.As(err, &undecodable) {
		return &storage.CorruptObjectError{Key: req.objectKey(), Revision: live.stored.ModRevision, Undecodable: true, Err: undecodable}
	}
	return err
}

// withoutLazyField returns the stored value with a placeholder for the lazily decoded field, if the
// write does not need that field.
func (r *Request) withoutLazyField(stored []byte) []byte {
	r.restoreLazyField = nil
	if lazy := r.Resource.Stored.LazyField; r.WithoutLazyField && lazy != nil {
		if text, restore, ok := lazy.WithPlaceholders(stored); ok {
			r.restoreLazyField = restore
			return text
		}
	}
	return stored
}

// encodeObject returns the value to store for an object. text is the result of
// KindCodec.ServedJSON, or nil if it is not available.
func (r *Request) encodeObject(ctx context.Context, obj registry.Object, text []byte) ([]byte, error) {
	value, err := r.encodeStored(ctx, obj, text)
	if err == nil && r.restoreLazyField != nil {
		var ok bool
		if value, ok = r.restoreLazyField(value); !ok {
			err = errors.New("the field of a lazily decoded value does not exist")
		}
	}
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	return value, nil
}

// encodeStored returns the stored form of an object, with the text if it is not nil.
func (r *Request) encodeStored(ctx context.Context, obj registry.Object, text []byte) ([]byte, error) {
	defer r.timeEncoding(ctx)()
	if text != nil {
		return r.Resource.Document.ToStored(ctx, text)
	}
	value, err := r.Resource.Coder.EncodeFor(ctx, obj)
	if err != nil {
		return nil, err
	}
	invalid := &doccheck.ValueError{}
	if err := r.Resource.Coder.CheckStored(value); errors.As(err, &invalid) {
		return nil, status.InvalidValue(r.Resource.GroupKind(), obj.GetName(), invalid.Path, invalid.Reason)
	}
	return value, err
}

// Read returns the object as it is in the store now.
func (w *Writer) Read(ctx context.Context, r *Request) (registry.Object, error) {
	live, err := w.readLive(ctx, r, true)
	if err != nil {
		return nil, w.toAPIError(r, admission.Delete, err)
	}
	return live.obj, nil
}

// outcome is the result of computing a write.
type outcome struct {
	// value is the value to store. obj is the object that it encodes.
	value []byte
	obj   registry.Object
	// remove removes the object instead of storing value.
	remove bool
	// unchanged leaves the store unchanged.
	unchanged bool
	// reservation, if not nil, is settled with the result of the write.
	reservation admission.Reservation
}

// putValue writes an object's value. If the object is too large for the store, it writes the object
// again without managedFields, which can be large. It does not do so for an apply, which must
// record the ownership of its fields.
func (w *Writer) putValue(
	ctx context.Context,
	req *Request,
	obj registry.Object,
	value []byte,
	write func(context.Context, []byte) (int64, error),
) ([]byte, int64, error) {
	request.Step(ctx, request.StepAdmit)
	resume := request.Suspend(ctx)
	revision, err := write(req.withStoredValue(ctx), value)
	resume()
	if err == nil {
		request.Step(ctx, request.StepWritten)
	} else {
		request.Step(ctx, request.StepFailed)
	}
	isApply := req.Patch != nil && req.Patch.ServerSideApply
	canShrink := obj != nil && obj.GetManagedFields() != nil && !isApply
	if !errors.Is(err, storage.ErrTooLarge) || !canShrink {
		return value, revision, err
	}
	obj.SetManagedFields(nil)
	if value, err = req.encodeObject(ctx, obj, nil); err != nil {
		return nil, 0, err
	}
	resume = request.Suspend(ctx)
	revision, err = write(req.withStoredValue(ctx), value)
	resume()
	return value, revision, err
}

// reportWritten reports a written revision to Written.
func (w *Writer) reportWritten(r *Request, revision int64) {
	if w.Written != nil && !r.SkipWritten {
		w.Written(r.Resource.GVR().GroupResource(), revision)
	}
}

// observeUpdate calls the observer of the resource. obj is nil if only metadata of a corrupt
// object changed.
func (w *Writer) observeUpdate(r *Request, old, obj registry.Object) {
	if observe := w.Updated[r.Resource.GVR().GroupResource()]; observe != nil && old != nil && obj != nil {
		observe(old, obj)
	}
}

// awaitSettled waits until the server has acted on a write of the object itself.
func (w *Writer) awaitSettled(ctx context.Context, r *Request, revision int64) {
	if wait := w.WaitForRevision[r.Resource.GVR().GroupResource()]; wait != nil && r.Sub == nil {
		defer request.Suspend(ctx)() // this waits for other components, too
		wait(ctx, revision)
	}
}

// modifyOrCreate modifies an object or, if it does not exist and create is not nil, creates it. It
// retries after a concurrent creation or deletion.
func (w *Writer) modifyOrCreate(
	ctx context.Context,
	r *Request,
	compute func(*liveObject) (outcome, error),
	create func() (Result, error),
) (Result, error) {
	for attempt := 0; ; attempt++ {
		result, err := w.modifyLive(ctx, r, admission.Update, compute)
		if err == nil || create == nil || !apierrors.IsNotFound(err) {
			return result, err
		}
		result, err = create()
		if attempt < maxAttempts && apierrors.IsAlreadyExists(err) {
			continue
		}
		return result, err
	}
}

// modifyLive is the loop of every write to an existing object: read the live state, compute the new
// object, compare-and-swap, and retry after a conflict. An error computed from a cached state
// counts only if that state is current. If compute may call a webhook, it starts from the
// store's state, so that the webhook does not see an outdated object.
func (w *Writer) modifyLive(
	ctx context.Context,
	r *Request,
	operation admission.Operation,
	compute func(*liveObject) (outcome, error),
) (Result, error) {
	live, err := w.readLive(ctx, r, operation != "" && w.Admission.CallsExternal(ctx, r.Admission(operation, nil, nil)))
	if err != nil {
		return Result{}, w.toAPIError(r, operation, err)
	}
	return w.modifyFrom(ctx, r, operation, live, compute)
}

// modifyFrom is the loop of modifyLive. It starts from the state l.
func (w *Writer) modifyFrom(
	ctx context.Context,
	req *Request,
	operation admission.Operation,
	live *liveObject,
	compute func(*liveObject) (outcome, error),
) (Result, error) {
	for attempt := 0; ; attempt++ {
		rollbackWarnings := request.CheckpointWarnings(ctx)

		// 1. Compute the new object.
		out, computeErr := compute(live)

		// 2. Confirm a cached state on which no swap will follow: an error, or no change.
		if (computeErr != nil || out.unchanged) && !live.confirmed {
			fresh, err := w.readLive(ctx, req, true)
			if err != nil {
				out.rollbackReservation(ctx)
				return Result{}, w.toAPIError(req, operation, err)
			}
			// A write without changes still rewrites a value that is stored in an old form.
			rewriteStale := computeErr == nil && !req.DryRun && fresh.stored.Stale()
			if fresh.stored.ModRevision != live.stored.ModRevision || rewriteStale {
				out.rollbackReservation(ctx)
				rollbackWarnings()
				live = fresh
				continue
			}
		}
		if computeErr != nil {
			return Result{}, req.objectRef().Translate(computeErr)
		}
		if out.unchanged {
			return out.resultUnchanged(ctx, live), nil
		}

		// 3. Swap.
		revision, err := w.compareAndSwap(ctx, req, live, &out)
		if err == nil {
			w.reportStored(ctx, req, live, out, revision)
			if out.remove && operation == admission.Update { // as in Kubernetes, the response has the last version
				revision = live.stored.ModRevision
			}
			return Result{Item: codec.Item{Stored: out.value, Revision: revision}}, nil
		}

		// 4. After a conflict, start again from the live value that the store returned.
		var conflict *storage.ConflictError
		if !errors.As(err, &conflict) || attempt == maxAttempts {
			return Result{}, w.toAPIError(req, operation, err)
		}
		rollbackWarnings()
		live = &liveObject{stored: conflict.Live, confirmed: true}
		if err := live.decodeValue(ctx, req); err != nil {
			return Result{}, w.toAPIError(req, operation, err)
		}
	}
}

// resultUnchanged returns the result of an outcome that leaves the store unchanged.
func (o *outcome) resultUnchanged(ctx context.Context, live *liveObject) Result {
	o.rollbackReservation(ctx)
	value := live.stored.Value
	if o.value != nil { // a dry run
		value = o.value
	}
	return Result{Item: codec.Item{Stored: value, Revision: live.stored.ModRevision}}
}

// compareAndSwap replaces or removes the object if it is still the live one. It sets out.value to
// the stored value, settles the reservation, and returns the revision.
func (w *Writer) compareAndSwap(ctx context.Context, r *Request, live *liveObject, out *outcome) (revision int64, err error) {
	if out.remove {
		resume := request.Suspend(ctx)
		revision, err = w.Store.Delete(ctx, r.objectKey(), live.stored.ModRevision, r.ExtraPreconditions...)
		resume()
	} else {
		update := func(ctx context.Context, value []byte) (int64, error) {
			return w.Store.Update(ctx, r.objectKey(), value, live.stored.ModRevision, w.writeOptions(r, nil))
		}
		out.value, revision, err = w.putValue(ctx, r, out.obj, out.value, update)
	}
	if out.reservation != nil {
		settleReservation(ctx, out.reservation, err)
	}
	return revision, err
}

// reportStored reports a stored outcome to the components that follow the writes of the kind.
func (w *Writer) reportStored(ctx context.Context, r *Request, live *liveObject, out outcome, revision int64) {
	w.reportWritten(r, revision)
	if out.remove {
		if allocator := w.allocatorOf(r); allocator != nil {
			allocator.Release(ctx, live.obj)
		}
		return
	}
	w.observeUpdate(r, live.obj, out.obj)
	w.awaitSettled(ctx, r, revision)
}

// rollbackReservation rolls back the reservation of an outcome that is not written.
func (o *outcome) rollbackReservation(ctx context.Context) {
	if o.reservation != nil {
		o.reservation.Rollback(ctx)
	}
}

// writeOptions returns the TTL of the written value and the preconditions of the write: the ones of
// the request and the given ones.
func (w *Writer) writeOptions(r *Request, preconditions []storage.Precondition) storage.WriteOptions {
	o := storage.WriteOptions{Preconditions: slices.Concat(r.ExtraPreconditions, preconditions)}
	if r.Resource.Stored.HasTTL {
		o.TTL = w.EventTTL
	}
	return o
}
