package discovery

import (
	"encoding/json"
	"math"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiversion "k8s.io/apimachinery/pkg/version"

	"binnacle/libs/version"
	"binnacle/services/apiserver/internal/codec/negotiation"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/status"
)

// WriteError writes an error as a Status in a negotiated media type.
type WriteError func(w http.ResponseWriter, r *http.Request, err error)

// Documents serves discovery. It is safe for concurrent use.
type Documents struct {
	builtIn    []*group
	priority   func(schema.GroupVersion) int // see WithVersionPriority
	writeError WriteError
	address    string          // see WithServerAddress
	paths      func() []string // see WithPaths
	version    apiversion.Info

	current atomic.Pointer[lazySnapshot]
	// lastSnapshot is the last snapshot that was built. The next one reuses its unchanged parts.
	lastSnapshot atomic.Pointer[snapshot]
}

// lazySnapshot builds a snapshot when get is first called.
type lazySnapshot struct{ get func() *snapshot }

// Option sets data that is not in the catalog.
type Option func(*Documents)

// WithServerAddress sets the host:port of this server in /api.
func WithServerAddress(address string) Option {
	return func(d *Documents) { d.address = address }
}

// WithPaths adds paths outside of APIs (health checks, metrics, OpenAPI) to the list of paths at /.
func WithPaths(paths func() []string) Option {
	return func(d *Documents) { d.paths = paths }
}

// WithVersion sets the version in /version. Without it, /version shows the version of the build.
func WithVersion(v apiversion.Info) Option {
	return func(d *Documents) { d.version = v }
}

// WithVersionPriority sets the priorities of built-in versions, which order the versions of a
// group. Without it, built-in versions precede all others.
func WithVersionPriority(priority func(schema.GroupVersion) int) Option {
	return func(d *Documents) { d.priority = priority }
}

// New returns the documents of the groups in a catalog.
func New(catalog *registry.Catalog, writeError WriteError, options ...Option) (*Documents, error) {
	documents := &Documents{
		priority:   func(schema.GroupVersion) int { return math.MaxInt },
		writeError: writeError,
		paths:      func() []string { return nil },
		version:    version.Get(),
	}
	for _, o := range options {
		o(documents)
	}
	documents.builtIn = builtInGroups(catalog, documents.priority)
	documents.Replace(nil)
	return documents, nil
}

// Replace replaces the group versions that are served in addition to the built-in ones. Responses
// in progress are not affected.
func (d *Documents) Replace(dynamic []GroupVersion) {
	dynamic = slices.Clone(dynamic)
	build := sync.OnceValue(func() *snapshot {
		s := newSnapshot(mergeGroups(d.builtIn, dynamic), d.address, d.lastSnapshot.Load())
		d.lastSnapshot.Store(s)
		return s
	})
	d.current.Store(&lazySnapshot{get: build})
}

func (d *Documents) snapshot() *snapshot { return d.current.Load().get() }

// HasGroup reports whether a group is served.
func (d *Documents) HasGroup(name string) bool { return d.snapshot().byName[name] != nil }

// ServeAPIRoot serves /api. Unlike /apis, kube-apiserver serves it through its router.
func (d *Documents) ServeAPIRoot(w http.ResponseWriter, r *http.Request) {
	snapshot := d.snapshot()
	if requested, ok := requestedAggregatedForm(r); ok {
		d.serveAggregated(w, r, requested, snapshot.aggregatedCore)
		return
	}
	d.serveRouted(w, r, snapshot.core)
}

// ServeAPIsRoot serves /apis.
func (d *Documents) ServeAPIsRoot(w http.ResponseWriter, r *http.Request) {
	snapshot := d.snapshot()
	if requested, ok := requestedAggregatedForm(r); ok && r.URL.Path != "/apis/" { // that path has no aggregated form
		d.serveAggregated(w, r, requested, snapshot.aggregatedNamed)
		return
	}
	d.serve(w, r, snapshot.groups)
}

// serveAggregated serves an aggregated document in a requested form.
func (d *Documents) serveAggregated(w http.ResponseWriter, r *http.Request, requested aggregatedForm, doc *document) {
	if requested.unsupported {
		d.writeError(w, r, status.NotAcceptable(negotiation.Media{}.Objects()))
		return
	}
	requested.serve(w, r, doc)
}

// ServeGroup serves /apis/<group>.
func (d *Documents) ServeGroup(w http.ResponseWriter, r *http.Request, name string) {
	doc := d.snapshot().group[name]
	if doc == nil {
		http.NotFound(w, r)
		return
	}
	d.serve(w, r, doc)
}

// ServeGroupVersion serves /api/<version> and /apis/<group>/<version>.
func (d *Documents) ServeGroupVersion(w http.ResponseWriter, r *http.Request, gv schema.GroupVersion) {
	doc := d.snapshot().groupVersion[gv]
	if doc == nil {
		d.writeError(w, r, status.NoResource())
		return
	}
	if d.isBuiltIn(gv) {
		d.serveRouted(w, r, doc)
		return
	}
	d.serve(w, r, doc)
}

func (d *Documents) isBuiltIn(gv schema.GroupVersion) bool {
	return slices.ContainsFunc(d.builtIn, func(g *group) bool { return g.name == gv.Group && g.version(gv.Version) != nil })
}

// ServeVersion serves /version.
func (d *Documents) ServeVersion(w http.ResponseWriter, _ *http.Request) {
	writeIndented(w, d.version)
}

// ServePaths serves /.
func (d *Documents) ServePaths(w http.ResponseWriter, _ *http.Request) {
	paths := append(d.snapshot().paths(), "/version")
	paths = append(paths, d.paths()...)
	slices.Sort(paths)
	writeIndented(w, metav1.RootPaths{Paths: slices.Compact(paths)})
}

// serveRouted serves a document that kube-apiserver serves through its router, which rejects unknown
// media types with an error of its own.
func (d *Documents) serveRouted(w http.ResponseWriter, r *http.Request, doc *document) {
	if m := (negotiation.Media{}); !m.Supports(r.Header.Get("Accept")) {
		d.writeError(w, r, status.NoRepresentation(m.Objects()))
		return
	}
	d.serve(w, r, doc)
}

// serve responds with a document in a form that the client accepts.
func (d *Documents) serve(w http.ResponseWriter, r *http.Request, doc *document) {
	choice, ok := negotiation.Media{}.Accept(r)
	if !ok {
		d.writeError(w, r, status.NotAcceptable(negotiation.Media{}.Objects()))
		return
	}
	body, err := doc.body(choice.Media, choice.Pretty)
	if err != nil {
		d.writeError(w, r, apierrors.NewInternalError(err))
		return
	}
	write(w, choice.Media, body.bytes)
}

// writeIndented responds with a value as indented JSON.
func writeIndented(w http.ResponseWriter, v any) {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	write(w, "application/json", b)
}

func write(w http.ResponseWriter, contentType string, body []byte) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Cache-Control", "no-cache, private")
	_, _ = w.Write(body) // fails only if the client has disconnected
}
