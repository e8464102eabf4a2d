package writes

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/audit"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/status"
	"binnacle/services/apiserver/internal/storage"
)

// live is the state of an object that a write starts from.
type live struct {
	kv  storage.KeyValue
	obj registry.Object
	// text is the served document of what has no Go type.
	text []byte
	// confirmed tells that it was read from the store, not from the cache.
	confirmed bool
}

// leastCounted is the size in bytes of a stored value from which it may have many values.
const leastCounted = 8 << 10

// weigh waits until work on an object may begin: a small change of a large one is large work,
// however it is made.
func (l *live) weigh(ctx context.Context, r *Request) error {
	size := len(l.kv.Value)
	if size >= leastCounted && size < request.LargeBody {
		if values, ok := r.Kind.Coder.Values(l.kv.Value); ok {
			size = request.PerValue * values
		} else {
			size = request.WeightOfJSON(l.kv.Value)
		}
	}
	return weigh(ctx, max(size, len(l.kv.Value)))
}

// maxAttempts bounds how often a write starts anew because somebody else was
// quicker. As many writers of one object each get their turn.
const maxAttempts = 100

// read fetches the state a write starts from: from the cache at first, which
// mostly has the newest, else from the store.
func (w *Writer) read(ctx context.Context, r *Request, confirmed bool) (*live, error) {
	if !confirmed {
		if e, ok := r.Kind.Store.Get(r.key()); ok && e.Unreadable() == nil {
			l := &live{kv: storage.KeyValue{Key: e.Key(), Value: e.Stored(), ModRevision: e.Revision, CreateRevision: e.CreateRevision}}
			return l, l.decode(ctx, r)
		}
	}
	kv, _, err := w.Store.Get(ctx, r.key(), 0)
	if err != nil {
		return nil, err
	}
	if err := r.Kind.Store.Entry(kv).Unreadable(); err != nil {
		return nil, err
	}
	l := &live{kv: kv, confirmed: true}
	return l, l.decode(ctx, r)
}

func (l *live) decode(ctx context.Context, r *Request) (err error) {
	if err := l.kv.Unreadable(); err != nil {
		return err
	}
	if err := l.weigh(ctx, r); err != nil {
		return err
	}
	defer audit.From(ctx).Track(audit.Decoding).Done()
	l.obj, l.text, err = r.Kind.Coder.DecodeWithText(ctx, codec.Item{Stored: r.marked(l.kv.Value), Revision: l.kv.ModRevision})
	if undecodable := new(codec.UndecodableError); errors.As(err, &undecodable) {
		return &storage.UnreadableError{Key: r.key(), Revision: l.kv.ModRevision, Undecodable: true, Err: undecodable}
	}
	return err
}

// marked is a stored value as the write decodes it.
func (r *Request) marked(stored []byte) []byte {
	r.restore = nil
	if a := r.Kind.Stored.Apart; r.Apart && a != nil {
		if text, restore, ok := a.Marked(stored); ok {
			r.restore = restore
			return text
		}
	}
	return stored
}

// encode makes of an object the value that is stored. text is that of Coder.Text, where
// it is at hand.
func (r *Request) encode(ctx context.Context, obj registry.Object, text []byte) ([]byte, error) {
	value, err := r.stored(ctx, obj, text)
	if err == nil && r.restore != nil {
		var ok bool
		if value, ok = r.restore(value); !ok {
			err = errors.New("what was kept apart has no place any more")
		}
	}
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	return value, nil
}

func (r *Request) stored(ctx context.Context, obj registry.Object, text []byte) ([]byte, error) {
	defer r.encodes(ctx)()
	if text != nil {
		return r.Kind.Document.Store(ctx, text)
	}
	value, err := r.Kind.Coder.EncodeFor(ctx, obj)
	if err != nil {
		return nil, err
	}
	invalid := &codec.ValueError{}
	if err := r.Kind.Coder.CheckStored(value); errors.As(err, &invalid) {
		return nil, status.InvalidValue(r.Kind.GroupKind(), obj.GetName(), invalid.Path, invalid.Reason)
	}
	return value, err
}

// Read is the object as it is in the store now.
func (w *Writer) Read(ctx context.Context, r *Request) (registry.Object, error) {
	l, err := w.read(ctx, r, true)
	if err != nil {
		return nil, w.translate(r, admission.Delete, err)
	}
	return l.obj, nil
}

// outcome is what a write wants stored in place of what is there.
type outcome struct {
	value []byte
	// obj is what value was encoded from.
	obj    registry.Object
	remove bool
	// keep leaves the store as it is.
	keep bool
	// claim, if any, is settled by what comes of it.
	claim Claim
}

// put writes an object's value. An object that is too large for the store is
// written without its managedFields, which can be large, unless it is applied:
// an apply that lost the ownership of all fields would not be one.
func (w *Writer) put(ctx context.Context, r *Request, obj registry.Object, value []byte, write func(context.Context, []byte) (int64, error)) ([]byte, int64, error) {
	request.Step(ctx, request.StepAdmit)
	answered := request.OnlyWaits(ctx)
	rev, err := write(r.described(ctx), value)
	answered()
	if err == nil {
		request.Step(ctx, request.StepWritten)
	} else {
		request.Step(ctx, request.StepFailed)
	}
	if !errors.Is(err, storage.ErrTooLarge) || obj == nil || obj.GetManagedFields() == nil || r.Patch != nil && r.Patch.Applies() {
		return value, rev, err
	}
	obj.SetManagedFields(nil)
	if value, err = r.encode(ctx, obj, nil); err != nil {
		return nil, 0, err
	}
	answered = request.OnlyWaits(ctx)
	rev, err = write(r.described(ctx), value)
	answered()
	return value, rev, err
}

// note tells of a revision that was written.
func (w *Writer) note(r *Request, revision int64) {
	if w.Written != nil && !r.Unnoted {
		w.Written(r.Kind.GVR().GroupResource(), revision)
	}
}

// awaitSettled waits until the server has acted on a write of the object itself.
func (w *Writer) awaitSettled(ctx context.Context, r *Request, revision int64) {
	if settled := w.Settled[r.Kind.GVR().GroupResource()]; settled != nil && r.Sub == nil {
		defer request.Aside(ctx)() // others are waited for here, too
		settled(ctx, revision)
	}
}

// modifyOrCreate modifies an object or, where there is none and create is not
// nil, creates it. Whoever was quicker is taken into account.
func (w *Writer) modifyOrCreate(ctx context.Context, r *Request, compute func(*live) (outcome, error), create func() (Result, error)) (Result, error) {
	for attempt := 0; ; attempt++ {
		res, err := w.modify(ctx, r, admission.Update, compute)
		if err == nil || create == nil || !apierrors.IsNotFound(err) {
			return res, err
		}
		if res, err = create(); attempt < maxAttempts && apierrors.IsAlreadyExists(err) {
			continue
		}
		return res, err
	}
}

// modify is the loop of every write to an existing object: start from the live
// state, compute, compare-and-swap, start anew when somebody else was quicker.
// An error that was found on a cached state counts only if that state is the
// newest. Where compute asks somebody outside whether it may be, it starts from
// the newest at once: a webhook is not asked about what was.
func (w *Writer) modify(ctx context.Context, r *Request, op admission.Operation, compute func(*live) (outcome, error)) (Result, error) {
	l, err := w.read(ctx, r, op != "" && w.Admission.Outside(ctx, r.Admission(op, nil, nil)))
	if err != nil {
		return Result{}, w.translate(r, op, err)
	}
	return w.modifyFrom(ctx, r, op, l, compute)
}

// modifyFrom is modify that starts from a state that was read.
func (w *Writer) modifyFrom(ctx context.Context, r *Request, op admission.Operation, l *live, compute func(*live) (outcome, error)) (Result, error) {
	for attempt := 0; ; attempt++ {
		forget := request.Attempt(ctx)
		out, cerr := compute(l)
		if (cerr != nil || out.keep) && !l.confirmed {
			fresh, err := w.read(ctx, r, true)
			if err != nil {
				out.drop(ctx)
				return Result{}, w.translate(r, op, err)
			}
			// What is stale is written anew by who changes nothing.
			if fresh.kv.ModRevision != l.kv.ModRevision || cerr == nil && !r.DryRun && fresh.kv.Stale() {
				out.drop(ctx)
				forget()
				l = fresh
				continue
			}
		}
		if cerr != nil {
			return Result{}, r.ref().Translate(cerr)
		}
		if out.keep {
			out.drop(ctx)
			if out.value != nil { // a dry run
				return Result{Item: codec.Item{Stored: out.value, Revision: l.kv.ModRevision}}, nil
			}
			return Result{Item: codec.Item{Stored: l.kv.Value, Revision: l.kv.ModRevision}}, nil
		}
		var rev int64
		var err error
		if out.remove {
			answered := request.OnlyWaits(ctx)
			rev, err = w.Store.Delete(ctx, r.key(), l.kv.ModRevision, r.While...)
			answered()
		} else {
			out.value, rev, err = w.put(ctx, r, out.obj, out.value, func(ctx context.Context, value []byte) (int64, error) {
				return w.Store.Update(ctx, r.key(), value, l.kv.ModRevision, w.options(r, nil))
			})
		}
		if out.claim != nil {
			settleClaim(ctx, out.claim, err)
		}
		if err == nil {
			w.note(r, rev)
			if z := w.allocatorOf(r); out.remove && z != nil {
				z.Release(ctx, l.obj)
			}
			if !out.remove {
				w.awaitSettled(ctx, r, rev)
			}
			return Result{Item: codec.Item{Stored: out.value, Revision: rev}}, nil
		}
		var conflict *storage.ConflictError
		if !errors.As(err, &conflict) || attempt == maxAttempts {
			return Result{}, w.translate(r, op, err)
		}
		forget()
		l = &live{kv: conflict.Live, confirmed: true}
		if err := l.decode(ctx, r); err != nil {
			return Result{}, w.translate(r, op, err)
		}
	}
}

// translate turns an error of the store into the one that clients know; op is what the
// write does.
func (w *Writer) translate(r *Request, op admission.Operation, err error) error {
	var unreadable *storage.UnreadableError
	switch uid := r.expectedUID(); {
	case uid != "" && errors.Is(err, storage.ErrNotFound):
		return r.uidConflict(uid, "")
	case !errors.As(err, &unreadable):
		return r.ref().Translate(err)
	case op == admission.Delete:
		return w.Damage.OfObject(unreadable)
	}
	return w.Damage.OfWrite(unreadable)
}

// drop gives back what an outcome has taken that is not written.
func (o *outcome) drop(ctx context.Context) {
	if o.claim != nil {
		o.claim.Drop(ctx)
	}
}

// options say how long lasts what is written, and what that depends on: on the request's
// own premises and others.
func (w *Writer) options(r *Request, while []storage.Premise) storage.WriteOptions {
	o := storage.WriteOptions{While: slices.Concat(r.While, while)}
	if r.Kind.Stored.Expires {
		o.TTL = w.EventTTL
	}
	return o
}
