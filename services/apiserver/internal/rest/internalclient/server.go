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
	"binnacle/services/apiserver/internal/cache/objects"
	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/rest/patch"
	"binnacle/services/apiserver/internal/rest/writes"
	"binnacle/services/apiserver/internal/security/audit"
	"binnacle/services/apiserver/internal/status"
	"binnacle/services/apiserver/internal/storage"
)

// Call is one request of the server to itself.
type Call struct {
	Verb Verb
	Ref
	// Manager is the field manager.
	Manager string
	// Body is the object to create or update, or the patch.
	Body any
	// Patch is the type of the patch. Force resolves conflicts of an apply.
	Patch types.PatchType
	Force bool
	// Delete holds the options of a deletion.
	Delete *metav1.DeleteOptions
	// Preconditions holds additional preconditions of a write.
	Preconditions []storage.Precondition
	// Labels selects the objects of a list; nil selects all.
	Labels map[string]string
	// Cached reads the cache without confirming that it is current.
	Cached bool
}

// Verb is the operation of a Call.
type Verb string

// Verbs.
const (
	Get    Verb = "get"
	List   Verb = "list"
	Create Verb = "create"
	Update Verb = "update"
	Patch  Verb = "patch"
	Delete Verb = "delete"
)

// Doer executes calls.
type Doer interface {
	// Do executes a call and decodes the result into out, unless out is nil. API errors are
	// *apierrors.StatusError.
	Do(ctx context.Context, c Call, out any) error
}

// Server executes calls on the resources of this server. Writes pass through admission, field
// management and validation.
type Server struct {
	// Kinds holds all resources of the server, including those that clients cannot use.
	Kinds *apiset.Live
	Cache *watchcache.Cache
	Codec *codec.Codec
	// Writer returns the writer. It is called after the server is built.
	Writer func() *writes.Writer
	Logger *slog.Logger
	// Audit, if set, records writes.
	Audit *audit.Auditor
	// Metrics may be nil.
	Metrics *Metrics
	// Traces, if set, creates spans of writes, also for writes that no client request causes.
	Traces *tracing.Provider
}

var _ Doer = (*Server)(nil)

// readTimeout bounds how long a read waits for a current cache.
const readTimeout = 3 * time.Second

// Do implements Doer. It recovers from panics, which it logs and returns as errors, so that
// background tasks do not crash the process.
func (s *Server) Do(ctx context.Context, call Call, out any) (err error) {
	defer func() {
		if r := recover(); r != nil {
			s.Logger.Error("panic in an internal request",
				"verb", call.Verb, "object", call.String(), "panic", r, "stack", string(debug.Stack()))
			err = status.Error(500, metav1.StatusReasonInternalError, fmt.Sprintf("%s %s: panic: %v", call.Verb, call.Ref, r), nil)
		}
		err = statusError(err)
	}()
	// 1. Find the resource and the subresource.
	resource := s.Kinds.Current().Resource(call.GroupVersionResource)
	if resource == nil {
		return status.NoResource()
	}
	var sub *registry.Subresource
	if call.Sub != "" {
		if sub = resource.Subresource(call.Sub); sub == nil {
			return status.NoResource()
		}
	}
	s.Metrics.countCall(&call)
	// 2. Read.
	if call.Verb == Get || call.Verb == List {
		return s.executeRead(ctx, resource, &call, out)
	}
	// 3. Or write, with an audit event and a span.
	// Warnings of this call must not reach the client whose request caused it.
	ctx, state := request.Derive(ctx)
	state.Warnings = &request.Warnings{}
	state.User = request.ServerUser()
	ctx, span := s.Traces.StartBackground(ctx, func() string { return "loopback " + requestInfoOf(resource, &call).Pattern() })
	defer func() {
		span.Fail(err)
		span.End()
	}()
	res, err := s.auditWrite(ctx, resource, &call, func(ctx context.Context) (writes.Result, error) {
		return s.executeWrite(ctx, &writes.Request{
			Resource:           resource,
			Sub:                sub,
			Namespace:          call.Namespace,
			Name:               call.Name,
			User:               request.ServerUser(),
			Manager:            call.Manager,
			Force:              call.Force,
			ExtraPreconditions: call.Preconditions,
		}, &call)
	})
	if err != nil || out == nil {
		return err
	}
	return decodeInto(resource, res.Item, out)
}

// executeWrite executes the write of a call.
func (s *Server) executeWrite(ctx context.Context, req *writes.Request, call *Call) (writes.Result, error) {
	writer := s.Writer()
	// 1. A deletion has no body.
	if call.Verb == Delete {
		o := call.Delete
		if o == nil {
			o = &metav1.DeleteOptions{}
		}
		req.Options = o.DeepCopy()
		return writer.Delete(ctx, req)
	}
	// 2. The body of a patch is decoded by its type.
	raw, err := json.Marshal(call.Body)
	if err != nil {
		return writes.Result{}, err
	}
	if call.Verb == Patch {
		audit.FromContext(ctx).SetRequestText(func() ([]byte, error) { return raw, nil })
		o := &metav1.PatchOptions{FieldManager: call.Manager}
		if call.Force {
			o.Force = &call.Force
		}
		req.Options = o
		// The server's own status patches do not depend on the lazily decoded part.
		req.WithoutLazyField = call.Sub == "status" && call.Patch == types.MergePatchType
		if req.Patch, err = patch.Decode(call.Patch, raw, true); err != nil {
			return writes.Result{}, err
		}
		return writer.Patch(ctx, req)
	}
	// 3. Decode an object as if a client had sent it, so that unset fields are absent.
	decoded, err := s.Codec.Decode(api.MediaJSON, raw, req.Resource.GVK(), nil, false)
	if err != nil {
		return writes.Result{}, err
	}
	obj, ok := decoded.Object.(registry.Object)
	if !ok || decoded.GVK != req.Resource.GVK() {
		return writes.Result{}, fmt.Errorf("%s is not %s", decoded.GVK, req.Resource.GVK())
	}
	req.Object = obj
	audit.FromContext(ctx).SetRequestObject(obj, func() ([]byte, error) { return s.Codec.Encode(obj, decoded.GVK, api.MediaJSON, false) })
	switch call.Verb {
	case Create:
		req.Options = &metav1.CreateOptions{}
		return writer.Create(ctx, req)
	case Update:
		req.Options = &metav1.UpdateOptions{}
		return writer.Update(ctx, req)
	}
	return writes.Result{}, fmt.Errorf("%q is not a verb", call.Verb)
}

// executeRead executes the get or list of a call and decodes the result into out.
func (s *Server) executeRead(ctx context.Context, resource *apiset.Resource, call *Call, out any) error {
	if !s.Cache.Ready() || !resource.Store.Ready() {
		return status.Reloading()
	}
	if !call.Cached {
		ctx, cancel := context.WithTimeout(ctx, readTimeout)
		defer cancel()
		if _, err := resource.Store.MostRecent(ctx); err != nil {
			return status.Ref{Resource: resource.GroupResource(), Name: call.Name}.Translate(err)
		}
	}
	if call.Verb == List {
		return s.listObjects(resource, call, out)
	}
	e, ok := resource.Store.Get(resource.Key(call.Namespace, call.Name))
	if !ok {
		return apierrors.NewNotFound(resource.GroupResource(), call.Name)
	}
	if out == nil {
		return nil
	}
	return decodeInto(resource, codec.Item{Stored: e.Stored(), Revision: e.Revision}, out)
}

// listObjects decodes all objects of a collection into a list.
func (s *Server) listObjects(resource *apiset.Resource, call *Call, out any) error {
	prefix := resource.Prefix
	if resource.Namespaced && call.Namespace != "" {
		prefix += call.Namespace + "/"
	}
	list := struct {
		Items []json.RawMessage `json:"items"`
	}{Items: []json.RawMessage{}}
	var err error
	resource.Store.Snapshot().Ascend(prefix, "", func(e *objects.Entry) bool {
		for label, value := range call.Labels {
			if e.Labels().Get(label) != value {
				return true
			}
		}
		var raw []byte
		if raw, err = encodeItem(resource, codec.Item{Stored: e.Stored(), Revision: e.Revision}); err != nil {
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

// encodeItem returns the JSON of a stored object.
func encodeItem(resource *apiset.Resource, item codec.Item) ([]byte, error) {
	obj, err := resource.Coder.DecodeStored(item.Stored, item.Revision)
	if err != nil {
		return nil, err
	}
	return resource.Coder.EncodeObject(obj)
}

// decodeInto decodes a stored object into out.
func decodeInto(resource *apiset.Resource, item codec.Item, out any) error {
	raw, err := encodeItem(resource, item)
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, out)
}

// statusError converts an error to the error that a client would receive.
func statusError(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, storage.ErrFull) { // callers check for this error, so it is not converted
		return err
	}
	if err == watchcache.ErrNotReady { //nolint:errorlint // the cache returns it without wrapping
		err = status.Reloading()
	}
	return &apierrors.StatusError{ErrStatus: *status.FromError(err)}
}
