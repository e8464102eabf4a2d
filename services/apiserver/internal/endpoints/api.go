package endpoints

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/represent"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/served"
	"binnacle/services/apiserver/internal/status"
	"binnacle/services/apiserver/internal/storage"
	"binnacle/services/apiserver/internal/watchcache"
	"binnacle/services/apiserver/internal/writes"
)

// Config is what the endpoints work with.
type Config struct {
	// Kinds are all that the server keeps, also where clients may not use it.
	Kinds *served.Live
	represent.Answers
	Store storage.Interface
	Cache *watchcache.Cache
	// Writes makes all writes.
	Writes *writes.Writer
	// Operations are what is answered beside reading and writing what is stored.
	Operations []Operation
	// Components are the parts of the control plane, in the order of a list.
	Components []Component
	// MinRequestTimeout bounds watches that name no timeout: they end after
	// this long, or up to twice as long.
	MinRequestTimeout time.Duration
	// BookmarkInterval is the time between bookmarks of a watch.
	BookmarkInterval time.Duration
	// UnsafeDelete heeds ignoreStoreReadErrorWithClusterBreakingPotential, which is
	// ignored otherwise.
	UnsafeDelete bool
	// WatchList allows sendInitialEvents.
	WatchList bool
	// Stopping ends when long-running requests have to end.
	Stopping context.Context
	Logger   *slog.Logger
	Metrics  *Metrics
}

// API answers requests below /api/<version> and /apis/<group>/<version>.
type API struct {
	Config
	large      *largeBodies
	operations map[operationKey]*Operation
}

// second is how exact the times of objects are.
const second = time.Second

// resource is a kind with all that its handlers need.
type resource = served.Resource

// New makes the API.
func New(c Config) *API {
	a := &API{Config: c, large: newLargeBodies(), operations: map[operationKey]*Operation{}}
	for i := range c.Operations {
		o := &c.Operations[i]
		a.operations[operationKey{o.Of, o.Subresource}] = o
	}
	return a
}

// Call is one request on its way through a handler.
type Call struct {
	*resource
	W   http.ResponseWriter
	R   *http.Request
	Op  *request.Operation
	Sub *registry.Subresource

	api *API
	// leave ends the turn of a large body; nil for none.
	leave func()
}

// Context of the request.
func (c *Call) Context() context.Context { return c.R.Context() }

func (c *Call) key() string     { return c.resource.Key(c.Op.Namespace, c.Op.Name) }
func (c *Call) ref() status.Ref { return refOf(c.Kind, c.Op.Name) }

// refOf names an object of a kind in messages.
func refOf(k *registry.Kind, name string) status.Ref {
	return status.Ref{Resource: k.GroupResource(), Name: name}
}

// kind finds a resource that the server keeps.
func (a *API) kind(gvr schema.GroupVersionResource) *resource { return a.Kinds.Current().Resource(gvr) }

// ServeHTTP answers a resource request, as it was resolved.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c, handle, err := a.route(w, r, request.From(r.Context()))
	if err == nil {
		if c.Shown.Deprecated != "" {
			request.Warn(r.Context(), c.Shown.Deprecated)
			a.Metrics.askedDeprecated(c.Kind, c.Op.Subresource)
		}
		err = c.run(handle)
	}
	if errors.Is(err, watchcache.ErrNotReady) {
		err = status.Reloading()
	}
	if err != nil {
		a.fail(w, r, err)
	}
}

// fail writes an error, unless nobody is there any more.
func (a *API) fail(w http.ResponseWriter, r *http.Request, err error) {
	// A body that did not arrive in time ends the request's context too.
	if errors.Is(context.Cause(r.Context()), context.Canceled) && status.Of(err).Code != http.StatusRequestTimeout {
		err = status.Gone()
	}
	if st := status.Of(err); st.Code == http.StatusInternalServerError && r.Context().Err() == nil {
		a.Logger.Error("request failed", "method", r.Method, "path", r.URL.Path, "error", err)
	}
	a.Error(w, r, err)
}

type handler func(*Call) error

func (c *Call) run(handle handler) error {
	defer func() {
		if c.leave != nil {
			c.leave()
		}
	}()
	return handle(c)
}

// route finds the handler of an operation: what is acted on (404), the verb
// (405), the media types (415, 406), in this order.
func (a *API) route(w http.ResponseWriter, r *http.Request, op *request.Operation) (*Call, handler, error) {
	if op.Target == nil {
		if k := op.Kinds.Resource(op.GVR()); k != nil && k.Document != nil && op.Subresource != "" {
			return nil, nil, apierrors.NewNotFound(k.GroupResource(), op.Name)
		}
		return nil, nil, status.NoResource()
	}
	c := &Call{resource: op.Target, W: w, R: r, Op: op, Sub: op.Sub, api: a}
	if c.Sub != nil && c.Sub.Connect {
		o := a.operation(c)
		if o != nil && !slices.Contains(o.Methods, op.Method) {
			return nil, nil, status.Method()
		}
		return c, a.carriedOn(o), nil
	}
	h := a.handler(c)
	if h == nil && c.Document != nil {
		return nil, nil, unsupported(c)
	}
	if h == nil {
		return nil, nil, status.Method()
	}
	if op.Verb == "patch" && !a.takesPatch(c) {
		if c.Document != nil {
			return nil, nil, status.BodyType(a.documentPatches())
		}
		return nil, nil, status.PatchType()
	}
	if accept := r.Header.Get("Accept"); !a.Config.Media.Known(accept) {
		if c.Document != nil {
			return nil, nil, status.NotAcceptable(a.Config.Media.Objects())
		}
		types := a.Config.Media.Objects()
		if op.Verb == "list" || op.Verb == "watch" {
			types = a.Config.Media.ObjectsAndStreams()
		}
		return nil, nil, status.NoRepresentation(types)
	}
	return c, h, nil
}

// unsupported refuses a method of a custom resource.
func unsupported(c *Call) error {
	if c.Op.Collection && c.Sub == nil && (c.Op.Verb == "update" || c.Op.Verb == "patch") {
		return apierrors.NewBadRequest("name must be provided")
	}
	return apierrors.NewMethodNotSupported(c.GroupResource(), c.Op.Verb)
}

// handler of an operation's verb; nil when there is none.
func (a *API) handler(c *Call) handler {
	switch {
	case c.Op.Method == http.MethodHead, c.Op.Verb == "watch" && c.Op.Method != http.MethodGet:
		return nil
	case c.Sub != nil && c.Sub.HasVerb(c.Op.Verb):
		return a.subresourceHandler(c)
	case c.Sub != nil:
		return nil
	case c.Virtual:
		return a.virtualHandler(c)
	case !c.HasVerb(c.Op.Verb):
		return nil
	case c.Op.Collection || c.Op.Verb == "watch":
		return a.collectionHandler(c)
	}
	switch c.Op.Verb {
	case "get":
		return a.get
	case "update":
		return a.update
	case "patch":
		return a.patch
	case "delete":
		return a.delete
	case "create":
		if c.Document != nil { // whatever name the path has
			return a.create
		}
	}
	return nil
}

func (a *API) collectionHandler(c *Call) handler {
	switch {
	case c.Op.Verb == "list":
		return a.list
	case c.Op.Verb == "watch":
		return a.watch
	case !c.takesNew():
		return nil
	case c.Op.Verb == "create":
		return a.create
	case c.Op.Verb == "deletecollection":
		return a.deleteCollection
	}
	return nil
}

// takesNew tells whether a path is a collection that objects can be added to:
// all namespaces together are none.
func (c *Call) takesNew() bool {
	return c.Op.Collection && (!c.Namespaced || c.Op.Namespace != "")
}
