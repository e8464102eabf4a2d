package endpoints

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"time"

	"github.com/google/uuid"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/meta"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/storage"
)

const second = time.Second

func newUID() types.UID { return types.UID(uuid.NewString()) }

// body reads a request's body and its media type.
func (a *API) body(r *http.Request) ([]byte, string, error) {
	media, ok := a.Config.Media.Body(r)
	if !ok {
		return nil, "", errBodyType(a.Config.Media.Objects())
	}
	b, err := readBody(r)
	return b, media, err
}

// decode reads an object of the kind from a body.
func (a *API) decode(c *call, body []byte, media string, o *writeOptions) (registry.Object, error) {
	obj, err := a.decodeAs(c, c.GVK(), body, media, o)
	if err != nil {
		return nil, err
	}
	out, ok := obj.(registry.Object)
	if !ok {
		return nil, fmt.Errorf("%T is no API object", obj)
	}
	return out, nil
}

// decodeAs reads an object of a type from a body; unknown and duplicate fields
// are refused, told or ignored (specification: "Field validation").
func (a *API) decodeAs(c *call, want schema.GroupVersionKind, body []byte, media string, o *writeOptions) (runtime.Object, error) {
	d, err := a.Config.Codec.Decode(media, body, want, nil, o.strict() || o.warn())
	if err != nil {
		return nil, undecodable(err, d.GVK, want.Kind, body)
	}
	if d.GVK.Kind != want.Kind || d.GVK.Group != want.Group {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: converting (%s.%s) to (%s.%s): unknown conversion",
			d.GVK.Kind, d.GVK.Version, want.Kind, d.GVK.Version, d.GVK.Kind, groupName(want.Group), want.Kind))
	}
	if d.GVK.Version != want.Version {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the API version in the data (%s) does not match the expected API version (%s)", d.GVK.GroupVersion(), want.GroupVersion()))
	}
	return d.Object, c.told(d.Unknown, o, func(err error) error {
		return apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: %v", d.GVK.Kind, d.GVK.Version, want.Kind, err))
	})
}

// groupName is how messages name a group's own types.
func groupName(group string) string {
	if group == "" {
		return "core"
	}
	name, _, _ := strings.Cut(group, ".")
	return name
}

// undecodable is the 400 for a body that cannot be read as the kind.
func undecodable(err error, seen schema.GroupVersionKind, want string, body []byte) error {
	if seen.Kind != "" {
		return apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: %v", seen.Kind, seen.Version, want, err))
	}
	return apierrors.NewBadRequest(fmt.Sprintf("the object provided is unrecognized (must be of type %s): %v (%s)", want, err, summary(body)))
}

// summary shows the beginning of a body: as text where it looks like JSON, else
// in hexadecimal.
func summary(body []byte) string {
	const most = 30
	switch {
	case len(body) == 0:
		return "<empty>"
	case len(bytes.TrimSpace(body)) > 0 && bytes.TrimSpace(body)[0] == '{':
		if len(body) > most {
			return string(body[:most]) + " ..."
		}
		return string(body)
	case len(body) > most:
		return fmt.Sprintf("%x ...", body[:most])
	}
	return fmt.Sprintf("%x", body)
}

// namespaceFits checks the body's namespace against the path's.
func (c *call) namespaceFits(obj registry.Object) error {
	if !c.Namespaced {
		if obj.GetNamespace() != "" {
			return apierrors.NewBadRequest("namespace must be empty for cluster-scoped objects")
		}
		return nil
	}
	if ns := obj.GetNamespace(); ns != "" && ns != c.info.Namespace {
		return apierrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
	}
	return nil
}

// nameFits checks the body's name and namespace against the path's.
func (c *call) nameFits(obj registry.Object) error {
	switch name := obj.GetName(); {
	case name == "":
		return apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s based on URL) was undeterminable: name must be provided", c.info.Name))
	case name != c.info.Name:
		return apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s) does not match the name on the URL (%s)", name, c.info.Name))
	}
	if ns := obj.GetNamespace(); c.Namespaced && ns != "" && ns != c.info.Namespace {
		return apierrors.NewBadRequest(fmt.Sprintf("the namespace of the object (%s) does not match the namespace on the request (%s)", ns, c.info.Namespace))
	}
	return nil
}

func (a *API) attributes(c *call, op admission.Operation, obj, old runtime.Object, o *writeOptions) *admission.Attributes {
	attrs := &admission.Attributes{
		Operation: op, Kind: c.Kind, Namespace: c.info.Namespace, Name: c.info.Name, Subresource: c.info.Subresource,
		Object: obj, OldObject: old, User: request.UserFrom(c.ctx()),
	}
	if o != nil {
		attrs.DryRun = o.dryRun
	}
	if attrs.Name == "" {
		if m, ok := obj.(registry.Object); ok {
			attrs.Name = m.GetName()
		}
	}
	return attrs
}

func (a *API) validateCreate(r *resource, obj registry.Object) field.ErrorList {
	errs := meta.ValidateCreate(r.Kind, obj)
	if r.Kind.Validate != nil {
		errs = append(errs, r.Kind.Validate(obj)...)
	}
	return a.withDeclared(r.Kind, obj, errs)
}

func (c *call) warn(obj registry.Object) {
	if c.Warnings == nil {
		return
	}
	for _, w := range c.Warnings(obj) {
		request.Warn(c.ctx(), w)
	}
}

// warnOfUpdate is warn for a change; sub-resources do not warn.
func (c *call) warnOfUpdate(obj, old registry.Object) {
	switch {
	case c.sub != nil:
	case c.UpdateWarnings == nil:
		c.warn(obj)
	default:
		for _, w := range c.UpdateWarnings(obj, old) {
			request.Warn(c.ctx(), w)
		}
	}
}

// statusField is the reflected status of an object; invalid when it has none.
func statusField(obj registry.Object) reflect.Value {
	return reflect.ValueOf(obj).Elem().FieldByName("Status")
}

// resetStatus sets the status to that of old, or to nothing.
func resetStatus(obj, old registry.Object) {
	f := statusField(obj)
	if !f.IsValid() {
		return
	}
	if old == nil {
		f.SetZero()
		return
	}
	f.Set(statusField(old))
}

// resetAllButStatus sets everything beside metadata and status to what old has.
func resetAllButStatus(obj, old registry.Object) {
	o, v := reflect.ValueOf(old).Elem(), reflect.ValueOf(obj).Elem()
	for i := range v.NumField() {
		switch v.Type().Field(i).Name {
		case "TypeMeta", "ObjectMeta", "Status":
		default:
			v.Field(i).Set(o.Field(i))
		}
	}
}

// specChanged tells whether anything but metadata and status differs.
func specChanged(obj, old registry.Object) bool {
	o, v := reflect.ValueOf(old).Elem(), reflect.ValueOf(obj).Elem()
	for i := range v.NumField() {
		switch v.Type().Field(i).Name {
		case "TypeMeta", "ObjectMeta", "Status":
		default:
			if !apiequality.Semantic.DeepEqual(v.Field(i).Interface(), o.Field(i).Interface()) {
				return true
			}
		}
	}
	return false
}

// live is the state of an object that a write starts from.
type live struct {
	kv  storage.KeyValue
	obj registry.Object
	// sure tells that it was read from the store, not from the cache.
	sure bool
}

// maxAttempts bounds how often a write starts anew because somebody else was
// quicker. As many writers of one object each get their turn.
const maxAttempts = 100

// read fetches the state a write starts from: from the cache at first, which
// mostly has the newest, else from the store.
func (a *API) read(ctx context.Context, c *call, sure bool) (*live, error) {
	if !sure {
		if e, ok := c.store.Get(c.key()); ok {
			l := &live{kv: storage.KeyValue{Key: e.Key, Value: e.Stored(), ModRevision: e.Revision, CreateRevision: e.CreateRevision}}
			return l, l.decode(c)
		}
	}
	kv, _, err := a.Store.Get(ctx, c.key(), 0)
	if err != nil {
		return nil, err
	}
	l := &live{kv: kv, sure: true}
	return l, l.decode(c)
}

func (l *live) decode(c *call) (err error) {
	l.obj, err = c.coder.DecodeStored(l.kv.Value, l.kv.ModRevision)
	return err
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

// store writes an object's value. An object that is too large for the store is
// written without its managedFields, which can be large.
func (a *API) store(c *call, obj registry.Object, value []byte, write func([]byte) (int64, error)) ([]byte, int64, error) {
	rev, err := write(value)
	if !errors.Is(err, storage.ErrTooLarge) || obj == nil || obj.GetManagedFields() == nil {
		return value, rev, err
	}
	obj.SetManagedFields(nil)
	if value, err = c.coder.EncodeStored(obj); err != nil {
		return nil, 0, fmt.Errorf("encode: %w", err)
	}
	rev, err = write(value)
	return value, rev, err
}

// modifyOrCreate modifies an object or, where there is none and create is not
// nil, creates it. Whoever was quicker is taken into account.
func (a *API) modifyOrCreate(c *call, compute func(*live) (outcome, error), create func() (shown, error)) (shown, int, error) {
	for attempt := 0; ; attempt++ {
		s, err := a.modify(c, compute)
		if err == nil || create == nil || !apierrors.IsNotFound(err) {
			return s, http.StatusOK, err
		}
		if s, err = create(); attempt < maxAttempts && apierrors.IsAlreadyExists(err) {
			continue
		}
		return s, http.StatusCreated, err
	}
}

// modify is the loop of every write to an existing object: start from the live
// state, compute, compare-and-swap, start anew when somebody else was quicker.
// An error that was found on a cached state counts only if that state is the
// newest.
func (a *API) modify(c *call, compute func(*live) (outcome, error)) (shown, error) {
	ctx := c.ctx()
	l, err := a.read(ctx, c, false)
	for attempt := 0; ; attempt++ {
		if err != nil {
			return shown{}, c.ref().translate(err)
		}
		out, cerr := compute(l)
		if (cerr != nil || out.keep) && !l.sure {
			fresh, err := a.read(ctx, c, true)
			if err != nil {
				out.drop(ctx)
				return shown{}, c.ref().translate(err)
			}
			if fresh.kv.ModRevision != l.kv.ModRevision {
				out.drop(ctx)
				l = fresh
				continue
			}
		}
		if cerr != nil {
			return shown{}, c.ref().translate(cerr)
		}
		if out.keep {
			out.drop(ctx)
			if out.value != nil { // a dry run
				return written(out.value, l.kv.ModRevision), nil
			}
			return shown{Item: codec.Item{Stored: l.kv.Value, Revision: l.kv.ModRevision}}, nil
		}
		var rev int64
		if out.remove {
			rev, err = a.Store.Delete(ctx, c.key(), l.kv.ModRevision)
		} else {
			out.value, rev, err = a.store(c, out.obj, out.value, func(value []byte) (int64, error) {
				return a.Store.Update(ctx, c.key(), value, l.kv.ModRevision, a.lifetime(c))
			})
		}
		if out.claim != nil {
			settle(ctx, out.claim, err)
		}
		if err == nil {
			if out.remove && c.allocator != nil {
				c.allocator.Release(ctx, l.obj)
			}
			return written(out.value, rev), nil
		}
		var conflict *storage.ConflictError
		if !errors.As(err, &conflict) || attempt == maxAttempts {
			return shown{}, c.ref().translate(err)
		}
		l = &live{kv: conflict.Live, sure: true}
		err = l.decode(c)
	}
}
