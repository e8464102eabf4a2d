package discovery

import (
	"encoding/json"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiversion "k8s.io/apimachinery/pkg/version"

	"binnacle/libs/version"
	"binnacle/services/apiserver/internal/negotiate"
	"binnacle/services/apiserver/internal/registry"
)

// Respond writes an object in a negotiated media type. Documents are written
// without it; it writes refusals.
type Respond func(w http.ResponseWriter, r *http.Request, code int, obj runtime.Object, gvk schema.GroupVersionKind)

// Documents serves discovery. Its methods may be called at the same time.
type Documents struct {
	builtIn  []*group
	priority func(schema.GroupVersion) int
	respond  Respond
	address  string
	paths    func() []string
	version  apiversion.Info

	current atomic.Pointer[func() *snapshot]
	// made is the snapshot that was made last, from which the next one takes what
	// does not differ.
	made atomic.Pointer[snapshot]
}

// Option sets what has no place in the catalog.
type Option func(*Documents)

// WithServerAddress tells clients host:port of this server in /api.
func WithServerAddress(address string) Option {
	return func(d *Documents) { d.address = address }
}

// WithPaths adds what is served beside APIs (health checks, metrics, OpenAPI)
// to the list of paths.
func WithPaths(paths func() []string) Option {
	return func(d *Documents) { d.paths = paths }
}

// WithVersion tells clients this version in /version, instead of that of the build.
func WithVersion(v apiversion.Info) Option {
	return func(d *Documents) { d.version = v }
}

// WithVersionPriority sets the priorities of built-in versions among the versions of their
// group. Without it, built-in versions precede all others.
func WithVersionPriority(priority func(schema.GroupVersion) int) Option {
	return func(d *Documents) { d.priority = priority }
}

// New serves the groups of the catalog.
func New(catalog *registry.Catalog, respond Respond, options ...Option) (*Documents, error) {
	d := &Documents{priority: func(schema.GroupVersion) int { return math.MaxInt }, respond: respond, paths: func() []string { return nil }, version: version.Get()}
	for _, o := range options {
		o(d)
	}
	d.builtIn = builtIn(catalog, d.priority)
	d.Replace(nil)
	return d, nil
}

// Replace sets the group versions that are served beside the built-in ones, in
// place of those set before. Documents already on their way are not affected.
func (d *Documents) Replace(dynamic []GroupVersion) {
	dynamic = slices.Clone(dynamic)
	next := sync.OnceValue(func() *snapshot {
		s := newSnapshot(merge(d.builtIn, dynamic), d.address, d.made.Load())
		d.made.Store(s)
		return s
	})
	d.current.Store(&next)
}

func (d *Documents) snapshot() *snapshot { return (*d.current.Load())() }

// HasGroup tells whether a group is served.
func (d *Documents) HasGroup(name string) bool { return d.snapshot().byName[name] != nil }

// ServeAPIRoot answers /api.
func (d *Documents) ServeAPIRoot(w http.ResponseWriter, r *http.Request) {
	s := d.snapshot()
	if a, ok := aggregatedForm(r); ok {
		d.serveAggregated(w, r, a, s.aggregatedCore)
		return
	}
	d.serve(w, r, s.core)
}

// ServeAPIsRoot answers /apis.
func (d *Documents) ServeAPIsRoot(w http.ResponseWriter, r *http.Request) {
	s := d.snapshot()
	if a, ok := aggregatedForm(r); ok {
		d.serveAggregated(w, r, a, s.aggregatedNamed)
		return
	}
	d.serve(w, r, s.groups)
}

func (d *Documents) serveAggregated(w http.ResponseWriter, r *http.Request, a aggregation, docs *aggregated) {
	if a.unsaid {
		d.refuse(w, r, http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable, "only the following media types are accepted: "+
			strings.Join(negotiate.Media{}.Objects(), ", "))
		return
	}
	a.serve(w, r, docs)
}

// ServeGroup answers /apis/<group>.
func (d *Documents) ServeGroup(w http.ResponseWriter, r *http.Request, name string) {
	doc := d.snapshot().group[name]
	if doc == nil {
		http.NotFound(w, r)
		return
	}
	d.serve(w, r, doc)
}

// ServeGroupVersion answers /api/<version> and /apis/<group>/<version>.
func (d *Documents) ServeGroupVersion(w http.ResponseWriter, r *http.Request, gv schema.GroupVersion) {
	doc := d.snapshot().groupVersion[gv]
	if doc == nil {
		d.refuse(w, r, http.StatusNotFound, metav1.StatusReasonNotFound, "the server could not find the requested resource")
		return
	}
	d.serve(w, r, doc)
}

// ServeVersion answers /version.
func (d *Documents) ServeVersion(w http.ResponseWriter, _ *http.Request) {
	writeIndented(w, d.version)
}

// ServePaths answers /.
func (d *Documents) ServePaths(w http.ResponseWriter, _ *http.Request) {
	paths := append(d.snapshot().paths(), "/version")
	paths = append(paths, d.paths()...)
	slices.Sort(paths)
	writeIndented(w, metav1.RootPaths{Paths: slices.Compact(paths)})
}

func (d *Documents) serve(w http.ResponseWriter, r *http.Request, doc *document) {
	choice, ok := negotiate.Media{}.Accept(r)
	if !ok {
		d.refuse(w, r, http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable, "none of the accepted media types is served")
		return
	}
	b, err := doc.body(choice.Media, choice.Pretty)
	if err != nil {
		d.refuse(w, r, http.StatusInternalServerError, metav1.StatusReasonInternalError, err.Error())
		return
	}
	write(w, choice.Media, b.bytes)
}

func (d *Documents) refuse(w http.ResponseWriter, r *http.Request, code int, reason metav1.StatusReason, message string) {
	d.respond(w, r, code, &metav1.Status{
		Status: metav1.StatusFailure, Code: int32(code), Reason: reason, Message: message, Details: &metav1.StatusDetails{},
	}, schema.GroupVersionKind{Version: "v1", Kind: "Status"})
}

// writeIndented answers a document that exists in JSON only.
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
	_, _ = w.Write(body) // the client is gone; there is nobody to tell
}
