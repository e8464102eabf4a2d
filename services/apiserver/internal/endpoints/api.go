package endpoints

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/apply"
	"binnacle/services/apiserver/internal/authn"
	"binnacle/services/apiserver/internal/authz"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/compress"
	"binnacle/services/apiserver/internal/negotiate"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/declare"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/storage"
	"binnacle/services/apiserver/internal/upstream"
	"binnacle/services/apiserver/internal/watchcache"
)

// Config is what the endpoints work with.
type Config struct {
	Catalog *registry.Catalog
	Codec   *codec.Codec
	Store   storage.Interface
	Cache   *watchcache.Cache
	// Compress shares compressed parts of lists; nil never compresses.
	Compress *compress.Cache
	// Root is the key that all resources stand below, without a slash at its
	// end.
	Root      string
	Admission *admission.Chain
	// Declared says what declared rules are for.
	Declared Declared
	// Allocators by kind.
	Allocators map[schema.GroupResource]Allocator
	// Authenticator and Authorizer answer the review kinds.
	Tokens authn.Tokens
	// Issuer makes service account tokens; nil where none are made.
	Issuer     *TokenIssuer
	Authorizer authz.Authorizer
	// Upstream reaches kubelets, pods and services.
	Upstream *upstream.Upstream
	// TranslateCommands serves commands over channels that can be closed,
	// TunnelPortForward forwarded ports over WebSocket; SplitLogStreams lets
	// clients choose one of a log's streams.
	TranslateCommands, TunnelPortForward, SplitLogStreams bool
	// EventTTL is the lifetime of events.
	EventTTL time.Duration
	// MinRequestTimeout bounds watches that name no timeout: they end after
	// this long, or up to twice as long.
	MinRequestTimeout time.Duration
	// BookmarkInterval is the time between bookmarks of a watch.
	BookmarkInterval time.Duration
	// Media are the media types that are read and written.
	Media negotiate.Media
	// WatchList allows sendInitialEvents.
	WatchList bool
	// Stopping ends when long-running requests have to end.
	Stopping context.Context
	// Now is the clock of object times; nil means time.Now.
	Now     func() time.Time
	Logger  *slog.Logger
	Metrics *Metrics
}

// API answers requests below /api/<version> and /apis/<group>/<version>.
type API struct {
	Config
	Responder
	resources map[*registry.Kind]*resource
	// scales and tokens keep the field ownership of these sub-resources.
	scales, tokens *apply.Manager
}

// resource is a kind with all that its handlers need.
type resource struct {
	*registry.Kind
	coder  *codec.Coder
	store  *watchcache.Store // nil for virtual kinds
	prefix string            // of its keys, with a slash at its end
	slot   int               // of its encodings among the kinds that share its store
	// allocator of what the kind's objects need to be unique; mostly nil
	allocator Allocator
	// managers keep field ownership, by sub-resource.
	managers map[string]*apply.Manager
	sent     watchMetrics
}

// New makes the API.
func New(c Config) *API {
	if c.Now == nil {
		c.Now = time.Now
	}
	a := &API{Config: c, Responder: Responder{Codec: c.Codec, Media: c.Media}, resources: map[*registry.Kind]*resource{}}
	slots := map[string]int{}
	fields := apply.New(c.Catalog, c.Now)
	a.scales = fields.Apart(operationKind(scaleGVK, declare.New[autoscalingv1.Scale]), "scale")
	a.tokens = fields.Apart(operationKind(tokenRequestGVK, declare.New[authenticationv1.TokenRequest]), "token")
	for _, k := range c.Catalog.Kinds() {
		res := &resource{Kind: k, coder: c.Codec.Of(k), managers: managers(fields, k)}
		if !k.Virtual {
			res.prefix = KeyPrefix(c.Root, k)
			res.store = c.Cache.Store(res.prefix)
			res.slot = slots[res.prefix]
			slots[res.prefix]++
			res.sent = c.Metrics.of(k)
			res.allocator = c.Allocators[k.GVR().GroupResource()]
		}
		a.resources[k] = res
	}
	return a
}

// KeyPrefix is where a kind's objects stand in the store.
func KeyPrefix(root string, k *registry.Kind) string { return root + "/" + k.Stored.Prefix + "/" }

// key of an object.
func (r *resource) key(namespace, name string) string {
	if r.Namespaced {
		return r.prefix + namespace + "/" + name
	}
	return r.prefix + name
}

// call is one request on its way through a handler.
type call struct {
	*resource
	w    http.ResponseWriter
	r    *http.Request
	info *request.Info
	sub  *registry.Subresource
}

func (c *call) ctx() context.Context { return c.r.Context() }
func (c *call) key() string          { return c.resource.key(c.info.Namespace, c.info.Name) }
func (c *call) ref() objectRef       { return refOf(c.Kind, c.info.Name) }

// ServeHTTP answers a resource request.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	info := request.InfoFrom(r.Context())
	c, handle, err := a.route(w, r, info)
	if err == nil {
		if c.Deprecated != "" {
			request.Warn(r.Context(), c.Deprecated)
			a.Metrics.askedDeprecated(c.Kind, info.Subresource)
		}
		err = handle(c)
	}
	if err != nil {
		a.fail(w, r, err)
	}
}

// fail writes an error, unless nobody is there any more.
func (a *API) fail(w http.ResponseWriter, r *http.Request, err error) {
	if st := statusOf(err); st.Code == http.StatusInternalServerError && r.Context().Err() == nil {
		a.Logger.Error("request failed", "method", r.Method, "path", r.URL.Path, "error", err)
	}
	a.Error(w, r, err)
}

type handler func(*call) error

// route finds the handler of a request: the resource by its path (404), the
// method (405), the media types (415, 406), in this order.
func (a *API) route(w http.ResponseWriter, r *http.Request, info *request.Info) (*call, handler, error) {
	kind := a.Catalog.Resource(info.GVR())
	if kind == nil {
		return nil, nil, errNoResource()
	}
	c := &call{resource: a.resources[kind], w: w, r: r, info: info}
	if !c.pathFits() {
		return nil, nil, errNoResource()
	}
	byMethod := a.methods(c)
	if byMethod == nil {
		return nil, nil, errNoResource()
	}
	h := byMethod[r.Method]
	if info.LegacyWatch {
		h = map[string]handler{http.MethodGet: a.watch}[r.Method]
	}
	if h == nil {
		return nil, nil, errMethod()
	}
	if c.connects() {
		return c, h, nil
	}
	if r.Method == http.MethodPatch && !a.takesPatch(c) {
		return nil, nil, errPatchType()
	}
	if accept := r.Header.Get("Accept"); !a.Config.Media.Known(accept) {
		types := a.Config.Media.Objects()
		if r.Method == http.MethodGet && info.Subresource == "" && (info.Verb == "list" || info.Verb == "watch") {
			types = a.Config.Media.ObjectsAndStreams()
		}
		return nil, nil, errNoRepresentation(types)
	}
	return c, h, nil
}

// pathFits checks the scope and the length of the path.
func (c *call) pathFits() bool {
	i := c.info
	if len(i.Parts) > 3 && i.Subresource != "proxy" {
		return false
	}
	if i.Malformed {
		return false
	}
	named := len(i.Parts) > 1
	switch {
	case !c.Namespaced:
		return i.Namespace == "" || c.Resource == "namespaces" && c.Group == ""
	case i.Namespace == "":
		return !named
	}
	return true
}

// methods returns the handlers of a path by HTTP method; nil when there is no
// such sub-resource.
func (a *API) methods(c *call) map[string]handler {
	named := len(c.info.Parts) > 1
	if c.info.Subresource != "" {
		c.sub = c.Subresource(c.info.Subresource)
		if c.sub == nil {
			return nil
		}
		return a.subresourceMethods(c)
	}
	if c.Virtual {
		return a.virtualMethods(c, named)
	}
	m := map[string]handler{}
	add := func(verb, method string, h handler) {
		if c.HasVerb(verb) {
			m[method] = h
		}
	}
	if named {
		add("get", http.MethodGet, a.get)
		add("update", http.MethodPut, a.update)
		add("patch", http.MethodPatch, a.patch)
		add("delete", http.MethodDelete, a.delete)
		if c.info.Verb == "watch" {
			add("watch", http.MethodGet, a.watch)
		}
		return m
	}
	add("list", http.MethodGet, a.list)
	if c.info.Verb == "watch" {
		delete(m, http.MethodGet)
		add("watch", http.MethodGet, a.watch)
	}
	if !c.Namespaced || c.info.Namespace != "" {
		add("create", http.MethodPost, a.create)
		add("deletecollection", http.MethodDelete, a.deleteCollection)
	}
	return m
}

// Known tells whether a request names a resource, and below it a sub-resource,
// that is served.
func (a *API) Known(i *request.Info) bool {
	k := a.Catalog.Resource(i.GVR())
	return k != nil && (i.Subresource == "" || k.Subresource(i.Subresource) != nil)
}
