package handlers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation/path"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/proxy/reverseproxy"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/rest/componentstatus"
	"binnacle/services/apiserver/internal/rest/responsewriters"
	"binnacle/services/apiserver/internal/rest/workers"
	"binnacle/services/apiserver/internal/rest/writes"
	"binnacle/services/apiserver/internal/security/audit"
	"binnacle/services/apiserver/internal/status"
	"binnacle/services/apiserver/internal/storage"
)

// deprecatedAnnotation is the audit annotation of a request for a deprecated kind.
const deprecatedAnnotation = "k8s.io/deprecated"

// removedReleaseAnnotation names the release that no longer serves the kind.
const removedReleaseAnnotation = "k8s.io/removed-release"

// ServeHTTP serves a resource request according to its Operation.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	op := requestinfo.From(r.Context())
	c, handle, err := a.route(w, r, op)
	if err != nil {
		if k := op.Kinds.Resource(op.GVR()); k != nil && k.Presentation.DeprecatedAlways && k.Presentation.Deprecated != "" {
			request.Warn(r.Context(), k.Presentation.Deprecated)
		}
	} else {
		if c.Presentation.Deprecated != "" {
			request.Warn(r.Context(), c.Presentation.Deprecated)
			audit.From(r.Context()).Annotate(deprecatedAnnotation, "true")
			if c.Presentation.RemovedRelease != "" {
				audit.From(r.Context()).Annotate(removedReleaseAnnotation, c.Presentation.RemovedRelease)
			}
			a.Metrics.askedDeprecated(c.Kind, c.Op.Subresource)
		}
		err = handle(c)
	}
	if errors.Is(err, apiset.ErrGone) {
		if c.Op.Return() {
			return
		}
		err = status.NoResource()
	}
	if errors.Is(err, apiset.ErrChanged) && c.Op.Return() {
		return
	}
	if errors.Is(err, watchcache.ErrNotReady) || errors.Is(err, apiset.ErrChanged) {
		err = status.Reloading()
	}
	if err != nil {
		a.fail(w, r, err)
	}
}

// route returns the handler of an operation. It checks the target (404), the verb (405) and the
// media types (415, 406), in this order.
func (a *API) route(w http.ResponseWriter, r *http.Request, op *requestinfo.Info) (*Call, handler, error) {
	if op.Target == nil {
		if k := op.Kinds.Resource(op.GVR()); k != nil && op.Subresource != "" {
			return nil, nil, k.Errors().NoSubresource(op.Name)
		}
		return nil, nil, status.NoResource()
	}
	c := &Call{resource: op.Target, W: w, R: r, Op: op, Sub: op.Sub, api: a}
	if c.createOnly() && (!op.Collection || c.Namespaced && op.Namespace == "" && !op.EmptyNamespace) {
		return nil, nil, status.NoResource()
	}
	if c.Namespaced && op.Namespace == "" {
		if c.NamespaceRequired && op.Verb != "list" && op.Verb != "watch" {
			return c, pageNotFound, nil
		}
		if !op.Collection {
			return nil, nil, apierrors.NewBadRequest("Namespace parameter required.")
		}
	}
	if c.Sub != nil && c.Sub.Connect {
		o := a.operation(c)
		if o != nil && !slices.Contains(o.Methods, op.Method) {
			return nil, nil, status.Method()
		}
		if err := validName(op); err != nil {
			return nil, nil, err
		}
		return c, a.proxied(o), nil
	}
	h := a.handler(c)
	if h == nil {
		return nil, nil, c.Errors().NoVerb(op.Verb, op.Collection && c.Sub == nil)
	}
	if op.Verb == "patch" {
		if types := a.patchTypes(c); !slices.Contains(types, string(patchType(r))) {
			return nil, nil, c.Errors().NoPatch(types)
		}
	}
	if accept := r.Header.Get("Accept"); !a.Config.Media.Known(accept) {
		return nil, nil, c.Errors().NotAcceptable(a.Config.Media, op.Verb == "list" || op.Verb == "watch")
	}
	if err := validName(op); err != nil {
		return nil, nil, err
	}
	return c, h, nil
}

// createOnly reports whether objects of the kind can only be created. They are not stored, so no
// path names one.
func (c *Call) createOnly() bool {
	return c.Sub == nil && c.Virtual && !c.HasVerb("get")
}

// validName rejects the name of an object that cannot be part of a path, such as "..".
func validName(op *requestinfo.Info) error {
	if op.Collection || op.Verb == "watch" || op.Verb == "create" && op.Sub == nil {
		return nil
	}
	if op.Sub != nil && op.Sub.Connect { // the name may have a scheme and a port
		return nil
	}
	if faults := path.IsValidPathSegmentName(op.Name); len(faults) > 0 {
		return apierrors.NewBadRequest(fmt.Sprintf("Name parameter invalid: %q: %s", op.Name, strings.Join(faults, ";")))
	}
	return nil
}

// pageNotFound serves a path without the namespace that the kind requires.
func pageNotFound(c *Call) error {
	http.NotFound(c.W, c.R)
	return nil
}

// handler returns the handler of the operation's verb, or nil.
func (a *API) handler(c *Call) handler {
	switch {
	case c.Op.Method == http.MethodHead && !c.Custom(), c.Op.Verb == "watch" && c.Op.Method != http.MethodGet:
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
		if c.Create.AtName {
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

// Config holds the dependencies and options of the API.
type Config struct {
	// Kinds holds all kinds that the server stores, including those that clients cannot access.
	Kinds *apiset.Live
	responsewriters.Writers
	Store storage.Interface
	// Root is the prefix of all keys. Spans omit it.
	Root string
	// Writes executes all writes.
	Writes *writes.Writer
	// Operations serve subresources and kinds that are not plain reads or writes of stored objects.
	Operations []Operation
	// Components are the components of the control plane, in list order.
	Components []componentstatus.Component
	// MinRequestTimeout is the timeout of watches that set none. They end after a random time
	// between this and twice as long.
	MinRequestTimeout time.Duration
	// BookmarkInterval is the time between bookmarks of a watch.
	BookmarkInterval time.Duration
	// DeleteCollectionWorkers is how many objects of a collection are deleted in parallel; 0 counts
	// as 1.
	DeleteCollectionWorkers int
	// CorruptObjects is the policy for reporting unreadable objects. If it names objects, clients may
	// delete them with ignoreStoreReadErrorWithClusterBreakingPotential; otherwise that option is
	// ignored.
	CorruptObjects status.CorruptObjects
	// WatchList allows sendInitialEvents.
	WatchList bool
	// NoCache reads the most recent objects also for resourceVersion=0.
	NoCache bool
	// Stopping is canceled when long-running requests must end.
	Stopping context.Context
	// ProxyLimit, if set, limits the requests that are proxied to other servers.
	ProxyLimit *reverseproxy.Limit
	Logger     *slog.Logger
	Metrics    *Metrics
}

// API serves requests below /api/<version> and /apis/<group>/<version>.
type API struct {
	Config
	operations map[operationKey]*Operation
	workers    workers.Pool  // of pumps
	selectors  selectorLimit // of watches
}

// resource is a served kind with everything that its handlers need.
type resource = apiset.Resource

// New returns the API.
func New(c Config) *API {
	a := &API{Config: c, operations: map[operationKey]*Operation{}, selectors: newSelectorLimit()}
	for i := range c.Operations {
		o := &c.Operations[i]
		a.operations[operationKey{o.Of, o.Subresource}] = o
	}
	return a
}

// Call is one request in its handler.
type Call struct {
	*resource
	W   http.ResponseWriter
	R   *http.Request
	Op  *requestinfo.Info
	Sub *registry.Subresource

	api *API
}

// Context returns the context of the request.
func (c *Call) Context() context.Context { return c.R.Context() }

func (c *Call) key() string     { return c.resource.Key(c.Op.Namespace, c.Op.Name) }
func (c *Call) ref() status.Ref { return refOf(c.Kind, c.Op.Name) }

// refOf returns the reference that messages use for an object of a kind.
func refOf(k *registry.Kind, name string) status.Ref {
	return status.Ref{Resource: k.GroupResource(), Name: name}
}

// kind returns a resource that the server stores, or nil.
func (a *API) kind(gvr schema.GroupVersionResource) *resource { return a.Kinds.Current().Resource(gvr) }

// fail writes an error, unless the client has disconnected.
func (a *API) fail(w http.ResponseWriter, r *http.Request, err error) {
	// A body that does not arrive in time also cancels the request's context.
	if errors.Is(context.Cause(r.Context()), context.Canceled) && status.Of(err).Code != http.StatusRequestTimeout {
		err = status.Gone()
	}
	if st := status.Of(err); st.Code == http.StatusInternalServerError && r.Context().Err() == nil {
		a.Logger.Error("request failed", "method", r.Method, "path", r.URL.Path, "error", err)
	}
	a.Error(w, r, err)
}

// takesNew reports whether the path is a collection that objects can be added to. All namespaces
// together are not, unless the path has an empty namespace segment.
func (c *Call) takesNew() bool {
	return c.Op.Collection && (!c.Namespaced || c.Op.Namespace != "" || c.Op.EmptyNamespace)
}

type handler func(*Call) error

// Operation serves a kind that stores nothing, or a subresource that is not a view of its object.
// Packages below subresources implement them; package build lists them.
type Operation struct {
	// Of is the resource. Subresource is empty for the kind itself.
	Of          schema.GroupResource
	Subresource string
	// Methods are the HTTP methods of a connect subresource. All other operations use POST.
	Methods []string
	Serve   func(*Call) error
}

type operationKey struct {
	of  schema.GroupResource
	sub string
}
