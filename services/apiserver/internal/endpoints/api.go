package endpoints

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/apply"
	"binnacle/services/apiserver/internal/authn"
	"binnacle/services/apiserver/internal/authz"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/declare"
	"binnacle/services/apiserver/internal/represent"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/served"
	"binnacle/services/apiserver/internal/status"
	"binnacle/services/apiserver/internal/storage"
	"binnacle/services/apiserver/internal/upstream"
	"binnacle/services/apiserver/internal/watchcache"
	"binnacle/services/apiserver/internal/writes"
)

// Config is what the endpoints work with.
type Config struct {
	// Kinds are all that the server keeps, also where clients may not use it.
	Kinds *served.Live
	represent.Answers
	Fields *apply.Fields
	Store  storage.Interface
	Cache  *watchcache.Cache
	// Writes makes all writes.
	Writes *writes.Writer
	// Authenticator and Authorizer answer the review kinds.
	Tokens authn.Tokens
	// Issuer makes service account tokens; nil where none are made.
	Issuer     *TokenIssuer
	Authorizer authz.Authorizer
	// Components are the parts of the control plane, in the order of a list.
	Components []Component
	// Upstream reaches kubelets, pods and services.
	Upstream *upstream.Upstream
	// TranslateCommands serves commands over channels that can be closed,
	// TunnelPortForward forwarded ports over WebSocket; SplitLogStreams lets
	// clients choose one of a log's streams.
	TranslateCommands, TunnelPortForward, SplitLogStreams bool
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
	// tokens keeps the field ownership of token requests.
	tokens *apply.Manager
	large  *largeBodies
	// bindings and evictions keep that of what is sent to those sub-resources.
	bindings, evictions *apply.Manager
}

// second is how exact the times of objects are.
const second = time.Second

// resource is a kind with all that its handlers need.
type resource = served.Resource

// New makes the API.
func New(c Config) *API {
	sent := func(gvk schema.GroupVersionKind, make func() runtime.Object, sub string) *apply.Manager {
		return c.Fields.Apart(&registry.Kind{
			Names: registry.Names{Group: gvk.Group, Version: gvk.Version, Kind: gvk.Kind}, Virtual: true, New: make,
		}, sub)
	}
	return &API{
		Config:    c,
		tokens:    sent(tokenRequestGVK, declare.New[authenticationv1.TokenRequest], "token"),
		bindings:  sent(corev1.SchemeGroupVersion.WithKind("Binding"), declare.New[corev1.Binding], "binding"),
		evictions: sent(policyv1.SchemeGroupVersion.WithKind("Eviction"), declare.New[policyv1.Eviction], "eviction"),
		large:     newLargeBodies(),
	}
}

// call is one request on its way through a handler.
type call struct {
	*resource
	w   http.ResponseWriter
	r   *http.Request
	op  *request.Operation
	sub *registry.Subresource
	// leave ends the turn of a large body; nil for none.
	leave func()
}

func (c *call) ctx() context.Context { return c.r.Context() }
func (c *call) key() string          { return c.resource.Key(c.op.Namespace, c.op.Name) }
func (c *call) ref() status.Ref      { return refOf(c.Kind, c.op.Name) }

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
			a.Metrics.askedDeprecated(c.Kind, c.op.Subresource)
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

type handler func(*call) error

func (c *call) run(handle handler) error {
	defer func() {
		if c.leave != nil {
			c.leave()
		}
	}()
	return handle(c)
}

// route finds the handler of an operation: what is acted on (404), the verb
// (405), the media types (415, 406), in this order.
func (a *API) route(w http.ResponseWriter, r *http.Request, op *request.Operation) (*call, handler, error) {
	if op.Target == nil {
		if k := op.Kinds.Resource(op.GVR()); k != nil && k.Document != nil && op.Subresource != "" {
			return nil, nil, apierrors.NewNotFound(k.GroupResource(), op.Name)
		}
		return nil, nil, status.NoResource()
	}
	c := &call{resource: op.Target, w: w, r: r, op: op, sub: op.Sub}
	if c.sub != nil && c.sub.Connect {
		h := a.connection(c)
		if h == nil {
			return nil, nil, status.Method()
		}
		return c, h, nil
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
func unsupported(c *call) error {
	if c.op.Collection && c.sub == nil && (c.op.Verb == "update" || c.op.Verb == "patch") {
		return apierrors.NewBadRequest("name must be provided")
	}
	return apierrors.NewMethodNotSupported(c.GroupResource(), c.op.Verb)
}

// handler of an operation's verb; nil when there is none.
func (a *API) handler(c *call) handler {
	switch {
	case c.op.Method == http.MethodHead, c.op.Verb == "watch" && c.op.Method != http.MethodGet:
		return nil
	case c.sub != nil && c.sub.HasVerb(c.op.Verb):
		return a.subresourceHandler(c)
	case c.sub != nil:
		return nil
	case c.Virtual:
		return a.virtualHandler(c)
	case !c.HasVerb(c.op.Verb):
		return nil
	case c.op.Collection || c.op.Verb == "watch":
		return a.collectionHandler(c)
	}
	switch c.op.Verb {
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

func (a *API) collectionHandler(c *call) handler {
	switch {
	case c.op.Verb == "list":
		return a.list
	case c.op.Verb == "watch":
		return a.watch
	case !c.takesNew():
		return nil
	case c.op.Verb == "create":
		return a.create
	case c.op.Verb == "deletecollection":
		return a.deleteCollection
	}
	return nil
}

// takesNew tells whether a path is a collection that objects can be added to:
// all namespaces together are none.
func (c *call) takesNew() bool {
	return c.op.Collection && (!c.Namespaced || c.op.Namespace != "")
}
