package endpoints

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/represent"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/served"
	"binnacle/services/apiserver/internal/status"
	"binnacle/services/apiserver/internal/storage"
	"binnacle/services/apiserver/internal/writes"
)

// Config is what the endpoints work with.
type Config struct {
	// Kinds are all that the server keeps, also where clients may not use it.
	Kinds *served.Live
	represent.Answers
	Store storage.Interface
	// Root is the prefix of all keys, which spans omit.
	Root string
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
	// DeleteCollectionWorkers is how many objects of a collection are deleted at a
	// time; 0 counts as 1.
	DeleteCollectionWorkers int
	// Damage says how objects are told of that cannot be read. Where they are named,
	// ignoreStoreReadErrorWithClusterBreakingPotential deletes them; it is ignored
	// otherwise.
	Damage status.Damage
	// WatchList allows sendInitialEvents.
	WatchList bool
	// LimitCached applies the limit of a list with resourceVersion=0 too.
	LimitCached bool
	// Stopping ends when long-running requests have to end.
	Stopping context.Context
	// Carried, if set, bounds the requests that are carried on.
	Carried *Carried
	Logger  *slog.Logger
	Metrics *Metrics
}

// API answers requests below /api/<version> and /apis/<group>/<version>.
type API struct {
	Config
	operations map[operationKey]*Operation
	workers    workers // of pumps
}

// resource is a kind with all that its handlers need.
type resource = served.Resource

// New makes the API.
func New(c Config) *API {
	a := &API{Config: c, operations: map[operationKey]*Operation{}}
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

// takesNew tells whether a path is a collection that objects can be added to:
// all namespaces together are none, unless the path names the empty namespace.
func (c *Call) takesNew() bool {
	return c.Op.Collection && (!c.Namespaced || c.Op.Namespace != "" || c.Op.EmptyNamespace)
}

type handler func(*Call) error

// Component is a part of the control plane that componentstatuses tells of.
type Component struct {
	Name string
	// Check asks the component for its health: what it says and whether it is
	// well. An error means that nobody knows.
	Check func(context.Context) (message string, healthy bool, err error)
}

// Operation is what is asked of a kind that stores nothing, or of a sub-resource that
// is no view of its object. Rooms below package operations have them; package app has
// the list of all.
type Operation struct {
	// Of is the resource, Subresource empty for the kind itself.
	Of          schema.GroupResource
	Subresource string
	// Methods are those of HTTP that a connection takes; others take POST.
	Methods []string
	Serve   func(*Call) error
}

type operationKey struct {
	of  schema.GroupResource
	sub string
}
