package internalclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"binnacle/libs/api"
	"binnacle/libs/tracing"
	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/rest/writes"
	"binnacle/services/apiserver/internal/security/audit"
	"binnacle/services/apiserver/internal/status"
	"binnacle/services/apiserver/internal/storage"
)

// Call is one request of the server's own.
type Call struct {
	Verb Verb
	Ref
	// Manager owns the fields that are written.
	Manager string
	// Sent is what is created, updated, or patched with.
	Sent any
	// Patch is of which type, Force lets an apply take over what others own.
	Patch types.PatchType
	Force bool
	// Delete are the options of a deletion.
	Delete *metav1.DeleteOptions
	// While are what a write depends on besides.
	While []storage.Premise
	// Labels selects what is listed; nil selects all.
	Labels map[string]string
	// Known reads what the cache has, without asking whether it is the newest.
	Known bool
}

// Verb is what a Call does.
type Verb string

// The verbs.
const (
	Get    Verb = "get"
	List   Verb = "list"
	Create Verb = "create"
	Update Verb = "update"
	Patch  Verb = "patch"
	Delete Verb = "delete"
)

// Door does the server's own calls.
type Door interface {
	// Do does a call and reads the answer into out, if that is not nil. Errors of
	// the API are *apierrors.StatusError.
	Do(ctx context.Context, c Call, out any) error
}

// Server is the door to the server's own kinds: what it writes goes through writes.
type Server struct {
	// Kinds are what the server keeps, also where clients may not use it.
	Kinds *apiset.Live
	Cache *watchcache.Cache
	Codec *codec.Codec
	// Writes makes all writes. The server's own work begins when it is there.
	Writes func() *writes.Writer
	Logger *slog.Logger
	// Audit, if set, tells of writes.
	Audit *audit.Auditor
	// Metrics may be nil.
	Metrics *Metrics
	// Traces, if set, makes spans of writes, also where no request is behind them.
	Traces *tracing.Provider
}

var _ Door = (*Server)(nil)

// wait bounds how long a read waits for the newest state.
const wait = 3 * time.Second

// Do implements Door. A panic is told and logged as an error: the server's own work
// must not end the process.
func (s *Server) Do(ctx context.Context, c Call, out any) (err error) {
	defer func() {
		if r := recover(); r != nil {
			s.Logger.Error("panic in a request of the server's own", "verb", c.Verb, "object", c.String(), "panic", r, "stack", string(debug.Stack()))
			err = status.Error(500, metav1.StatusReasonInternalError, fmt.Sprintf("%s %s: panic: %v", c.Verb, c.Ref, r), nil)
		}
		err = statusError(err)
	}()
	k := s.Kinds.Current().Resource(c.GroupVersionResource)
	if k == nil {
		return status.NoResource()
	}
	var sub *registry.Subresource
	if c.Sub != "" {
		if sub = k.Subresource(c.Sub); sub == nil {
			return status.NoResource()
		}
	}
	s.Metrics.count(&c)
	if c.Verb == Get || c.Verb == List {
		return s.read(ctx, k, &c, out)
	}
	// What this is warned of is not for a client whose request it serves.
	ctx, _ = request.WithWarnings(ctx)
	ctx = request.WithUser(ctx, request.Self())
	ctx, span := s.Traces.Begin(ctx, func() string { return "loopback " + operationOf(k, &c).Form() })
	defer func() {
		span.Fail(err)
		span.End()
	}()
	res, err := s.audited(ctx, k, &c, func(ctx context.Context) (writes.Result, error) {
		return s.write(ctx, &writes.Request{
			Kind: k, Sub: sub, Namespace: c.Namespace, Name: c.Name, User: request.Self(), Manager: c.Manager, Force: c.Force, While: c.While,
		}, &c)
	})
	if err != nil || out == nil {
		return err
	}
	return show(k, res.Item, out)
}

func (s *Server) write(ctx context.Context, r *writes.Request, c *Call) (writes.Result, error) {
	w := s.Writes()
	if c.Verb == Delete {
		o := c.Delete
		if o == nil {
			o = &metav1.DeleteOptions{}
		}
		r.Options = o.DeepCopy()
		return w.Delete(ctx, r)
	}
	raw, err := json.Marshal(c.Sent)
	if err != nil {
		return writes.Result{}, err
	}
	if c.Verb == Patch {
		audit.From(ctx).SetRequestText(func() ([]byte, error) { return raw, nil })
		o := &metav1.PatchOptions{FieldManager: c.Manager}
		if c.Force {
			o.Force = &c.Force
		}
		r.Options = o
		// What the server itself says of a status it does not read from the large part.
		r.Apart = c.Sub == "status" && c.Patch == types.MergePatchType
		if r.Patch, err = writes.DecodePatch(c.Patch, raw, true); err != nil {
			return writes.Result{}, err
		}
		return w.Patch(ctx, r)
	}
	// As a client would send it: what is not said is not there.
	d, err := s.Codec.Decode(api.MediaJSON, raw, r.Kind.GVK(), nil, false)
	if err != nil {
		return writes.Result{}, err
	}
	obj, ok := d.Object.(registry.Object)
	if !ok || d.GVK != r.Kind.GVK() {
		return writes.Result{}, fmt.Errorf("%s is no %s", d.GVK, r.Kind.GVK())
	}
	r.Object = obj
	audit.From(ctx).SetRequestObject(obj, func() ([]byte, error) { return s.Codec.Encode(obj, d.GVK, api.MediaJSON, false) })
	switch c.Verb {
	case Create:
		r.Options = &metav1.CreateOptions{}
		return w.Create(ctx, r)
	case Update:
		r.Options = &metav1.UpdateOptions{}
		return w.Update(ctx, r)
	}
	return writes.Result{}, fmt.Errorf("%q is no verb", c.Verb)
}

func (s *Server) read(ctx context.Context, k *apiset.Resource, c *Call, out any) error {
	if !s.Cache.Ready() || !k.Store.Ready() {
		return status.Reloading()
	}
	if !c.Known {
		ctx, cancel := context.WithTimeout(ctx, wait)
		defer cancel()
		if _, err := k.Store.MostRecent(ctx); err != nil {
			return status.Ref{Resource: k.GroupResource(), Name: c.Name}.Translate(err)
		}
	}
	if c.Verb == List {
		return s.list(k, c, out)
	}
	e, ok := k.Store.Get(k.Key(c.Namespace, c.Name))
	if !ok {
		return apierrors.NewNotFound(k.GroupResource(), c.Name)
	}
	if out == nil {
		return nil
	}
	return show(k, codec.Item{Stored: e.Stored(), Revision: e.Revision}, out)
}

// list reads all objects of a kind into a list of it.
func (s *Server) list(k *apiset.Resource, c *Call, out any) error {
	prefix := k.Prefix
	if k.Namespaced && c.Namespace != "" {
		prefix += c.Namespace + "/"
	}
	list := struct {
		Items []json.RawMessage `json:"items"`
	}{Items: []json.RawMessage{}}
	var err error
	k.Store.Snapshot().Ascend(prefix, "", func(e *watchcache.Entry) bool {
		for label, value := range c.Labels {
			if e.Labels().Get(label) != value {
				return true
			}
		}
		var raw []byte
		if raw, err = encode(k, codec.Item{Stored: e.Stored(), Revision: e.Revision}); err != nil {
			return false
		}
		list.Items = append(list.Items, raw)
		return true
	})
	if err != nil {
		return err
	}
	raw, err := json.Marshal(list)
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, out)
}

func encode(k *apiset.Resource, item codec.Item) ([]byte, error) {
	obj, err := k.Coder.DecodeStored(item.Stored, item.Revision)
	if err != nil {
		return nil, err
	}
	return k.Coder.EncodeObject(obj)
}

func show(k *apiset.Resource, item codec.Item, out any) error {
	raw, err := encode(k, item)
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, out)
}

// statusError is an error as clients know it.
func statusError(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, storage.ErrFull) { // who wrote has to know
		return err
	}
	if err == watchcache.ErrNotReady { //nolint:errorlint // is returned as it is
		err = status.Reloading()
	}
	return &apierrors.StatusError{ErrStatus: *status.Of(err)}
}
