package openapi

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"reflect"
	goruntime "runtime"
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"binnacle/libs/api"
	"binnacle/libs/version"
	"binnacle/services/apiserver/internal/api/openapi/typefacts"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/status"
)

// Group is a group version of custom resources.
type Group struct {
	GroupVersion schema.GroupVersion
	// Kinds holds the served kinds.
	Kinds []*registry.Kind
	// Schemas returns the schema of a kind in its definition, or nil. It is called when the
	// document is built. r is shared by the documents of the same group that are built together.
	Schemas func(r *SchemaCache, kind string) *spec.Schema
	// Lenient holds the kinds whose definitions keep unknown fields. The v2 document omits their
	// schemas, because kubectl would reject unknown fields.
	Lenient map[string]bool
	// Hash changes whenever any other field changes. A group version with an unchanged hash keeps
	// its document. An empty hash always causes a new document.
	Hash string
}

// Service serves the documents. It is safe for concurrent use.
type Service struct {
	catalog *registry.Catalog
	scheme  func() *runtime.Scheme // created when it is first needed
	params  func() *parameters     // created when they are first needed
	media   mediaTypes
	enums   bool
	release string
	builtIn []*entry
	packer  packer
	// v2Slots and v3Slots limit the number of concurrent builds of v2 and v3 documents.
	v2Slots, v3Slots chan struct{}
	writeError       func(http.ResponseWriter, *http.Request, error)

	remoteV2 func(context.Context) []RemoteV2Document // may be nil
	mergeMu  sync.Mutex                               // guards merged; leaf lock
	merged   *mergedDocument

	replaceMu sync.Mutex // serializes Replace
	current   atomic.Pointer[snapshot]
}

// entry is one v3 document and its sources, which are also sources of the v2 document.
type entry struct {
	path string // below /openapi/v3/
	// hash is Group.Hash, and group the name of the group. Both are empty for built-in entries.
	hash, group string
	paths       func() []path
	// schemas returns the models of custom resources by name; nil for built-in entries.
	schemas func(m *models, r *SchemaCache) map[string]*spec.Schema
	// names holds the names of the models of custom resources.
	names []string
	doc   *document
}

// snapshot is an immutable set of documents.
type snapshot struct {
	entries []*entry
	byPath  map[string]*entry
	remotes map[string]RemoteGroupVersion // by path
	v2      *document
	index   shared[*index]
}

// Options control the contents of the documents.
type Options struct {
	// CBOR adds CBOR to the media types of built-in kinds.
	CBOR bool
	// Patches holds the media types of patches of built-in kinds, CustomPatches of custom
	// resources.
	Patches, CustomPatches []string
	// NoEnums omits the allowed values of fields.
	NoEnums bool
	// Release is the version of the API in the documents, such as "1.33". Empty means the version
	// of the server.
	Release string
	// Reject responds with an error as a Status. If it is nil, errors are plain text.
	Reject func(http.ResponseWriter, *http.Request, error)
}

// New returns a service for the kinds of a catalog. scheme returns the Go types of all versions and
// subresources. It is called once, when the first document is built.
func New(catalog *registry.Catalog, scheme func() *runtime.Scheme, o Options) (*Service, error) {
	service := &Service{
		catalog: catalog, scheme: sync.OnceValue(scheme), params: sync.OnceValue(newParameters), media: mediaTypesOf(o),
		enums: !o.NoEnums, writeError: o.Reject, release: cmp.Or(o.Release, version.Major+"."+version.Minor),
		// The v2 document contains the whole API. It has its own slot, so that its build does not
		// delay v3 documents.
		v2Slots: make(chan struct{}, 1),
		v3Slots: make(chan struct{}, max(1, goruntime.GOMAXPROCS(0)-1)), // one CPU remains for other work
	}
	if service.writeError == nil {
		service.writeError = func(w http.ResponseWriter, _ *http.Request, err error) {
			http.Error(w, err.Error(), int(status.FromError(err).Code))
		}
	}
	kinds := map[schema.GroupVersion][]*registry.Kind{}
	for _, k := range catalog.Kinds() {
		kinds[k.GroupVersion()] = append(kinds[k.GroupVersion()], k)
	}
	service.builtIn = service.rootEntries()
	for _, group := range catalog.Groups() {
		if group.Name != "" {
			service.builtIn = append(service.builtIn, service.groupEntry(group.Name))
		}
		for _, v := range group.Versions {
			gv := schema.GroupVersion{Group: group.Name, Version: v}
			service.builtIn = append(service.builtIn, service.builtInEntry(apiPath(gv), func() []path {
				d := &describer{gv: gv, params: service.params(), media: &service.media, newObject: service.newObject}
				return d.describeGroupVersion(sortedKinds(kinds[gv]))
			}))
		}
	}
	service.Replace(nil, nil)
	return service, nil
}

func (s *Service) newObject(kind schema.GroupVersionKind) (runtime.Object, error) {
	return s.scheme().New(kind)
}

// sortedKinds returns kinds sorted by resource.
func sortedKinds(kinds []*registry.Kind) []*registry.Kind {
	kinds = slices.Clone(kinds)
	sort.Slice(kinds, func(i, j int) bool { return kinds[i].Resource < kinds[j].Resource })
	return kinds
}

// rootEntries returns the entries of the paths outside of groups: /api, /apis and /version.
func (s *Service) rootEntries() []*entry {
	rootEntry := func(at, id, description, tagName string, result any) *entry {
		return s.builtInEntry(at, func() []path { return []path{s.rootPath("/"+at+"/", id, description, tagName, result)} })
	}
	versions := s.rootPath(
		"/version/",
		"getCodeVersion",
		"get the version information for this server",
		"version",
		&apiversion.Info{},
	)
	versions.operations[0].consumes = []string{api.MediaJSON}
	versions.operations[0].produces = []string{api.MediaJSON}
	return []*entry{
		rootEntry("api", "getCoreAPIVersions", "get available API versions", "core", &metav1.APIVersions{}),
		rootEntry("apis", "getAPIVersions", "get available API versions", "apis", &metav1.APIGroupList{}),
		s.builtInEntry("version", func() []path { return []path{versions} }),
	}
}

// DescribeIssuer adds the paths at which clients find the keys of the service account issuer. It
// must be called before ServeHTTP and Replace.
func (s *Service) DescribeIssuer() {
	issuerEntry := func(at, id, description, tagName, media string) *entry {
		p := path{path: "/" + at + "/", operations: []operation{{
			method: http.MethodGet, id: id, description: description, tag: tagName, result: &bodyModel{},
			codes: []int{http.StatusOK}, produces: []string{media},
		}}}
		return s.builtInEntry(at, func() []path { return []path{p} })
	}
	s.builtIn = append(s.builtIn,
		issuerEntry(".well-known/openid-configuration", "getServiceAccountIssuerOpenIDConfiguration",
			"get service account issuer OpenID configuration, also known as the 'OIDC discovery doc'", "WellKnown", api.MediaJSON),
		issuerEntry(
			"openid/v1/jwks",
			"getServiceAccountIssuerOpenIDKeyset",
			"get service account issuer OpenID JSON Web Key Set (contains public token verification keys)",
			"openid",
			"application/jwk-set+json",
		))
	s.Replace(nil, nil)
}

// groupEntry returns the entry of the path of a group, /apis/<group>.
func (s *Service) groupEntry(group string) *entry {
	at := "apis/" + group
	return s.builtInEntry(at, func() []path {
		return []path{
			s.rootPath(
				"/"+at+"/",
				"get"+camelCase(nameParts(group))+"APIGroup",
				"get information of a group",
				tag(group, ""),
				&metav1.APIGroup{},
			),
		}
	})
}

// builtInEntry returns the entry of a built-in group version, or of a path outside of group
// versions. at is its path without the leading slash.
func (s *Service) builtInEntry(at string, paths func() []path) *entry {
	e := &entry{path: at, paths: paths}
	e.doc = s.packer.newDocument(s.v3Slots, func(r *SchemaCache) ([]byte, error) {
		facts, err := r.typeFacts()
		if err != nil {
			return nil, err
		}
		models := newModels(facts, s.kindsOf(allVersions(facts)), formV3, s.enums)
		doc := newV3(e.paths(), models, nil, spec.InfoProps{Title: apiTitle, Version: s.release})
		doc.Components.SecuritySchemes = securitySchemes()
		return doc.MarshalJSON()
	}, v3Proto)
	return e
}

// Replace replaces the group versions of custom resources (groups) and of other servers (remotes).
// A built-in group version takes precedence over both, and groups over remotes.
func (s *Service) Replace(groups []Group, remotes []RemoteGroupVersion) {
	s.replaceMu.Lock()
	defer s.replaceMu.Unlock()
	old := s.current.Load()
	next := &snapshot{entries: slices.Clone(s.builtIn), byPath: map[string]*entry{}, remotes: map[string]RemoteGroupVersion{}}
	taken := map[string]bool{} // paths
	for _, e := range s.builtIn {
		taken[e.path] = true
	}
	for i := range groups {
		group := &groups[i]
		path := apiPath(group.GroupVersion)
		if taken[path] {
			continue
		}
		taken[path] = true
		if old != nil && group.Hash != "" {
			if e := old.byPath[path]; e != nil && e.hash == group.Hash {
				next.entries = append(next.entries, e)
				continue
			}
		}
		next.entries = append(next.entries, s.customEntry(*group))
	}
	for _, e := range next.entries {
		next.byPath[e.path] = e
	}
	for _, remote := range remotes {
		if path := apiPath(remote.GroupVersion); !taken[path] {
			next.remotes[path] = remote
		}
	}
	if old != nil && slices.Equal(old.entries, next.entries) {
		next.v2 = old.v2 // only the documents of other servers have changed
		s.current.Store(next)
		return
	}
	next.v2 = s.packer.newDocument(s.v2Slots, func(*SchemaCache) ([]byte, error) { return s.buildV2(next.entries) }, v2Proto)
	s.current.Store(next)
}

// buildV2 returns the JSON of the v2 document of all entries.
func (s *Service) buildV2(entries []*entry) ([]byte, error) {
	doc, err := s.newV2Spec(entries)
	if err != nil {
		return nil, err
	}
	return doc.MarshalJSON()
}

// newV2Spec returns the v2 document of all entries.
func (s *Service) newV2Spec(entries []*entry) (*spec.Swagger, error) {
	caches := newGroupCaches()
	facts, err := caches.facts()
	if err != nil {
		return nil, err
	}
	models := newModels(facts, s.kindsOf(allVersions(facts)), formV2, s.enums)
	var all []path
	customModels := map[string]*spec.Schema{}
	for _, e := range entries {
		ps := e.paths()
		if e.schemas == nil {
			models.addReferenced(ps)
		} else {
			e.renameConflicts(models)
			maps.Copy(customModels, e.schemas(models, caches.cacheFor(e)))
		}
		all = append(all, ps...)
	}
	return newV2(all, models, customModels, s.release), nil
}

// allVersions returns all group versions that the API has or had. The models of DeleteOptions and
// of watch events list them.
func allVersions(facts *typefacts.Facts) []schema.GroupVersion {
	out := slices.Clone(facts.Versions)
	for _, group := range []string{"apiextensions", "apiregistration"} {
		for _, v := range []string{"v1", "v1beta1"} {
			out = append(out, schema.GroupVersion{Group: group + "." + api.Domain, Version: v})
		}
	}
	return out
}

// customVersions returns the group versions that the model of DeleteOptions lists in the documents
// of custom resources. Kubernetes takes them from client-go, which lacks groups that only servers
// use.
func customVersions(facts *typefacts.Facts) []schema.GroupVersion {
	return slices.DeleteFunc(slices.Clone(facts.Versions), func(gv schema.GroupVersion) bool {
		return gv.Group == "admission."+api.Domain || gv.Group == "imagepolicy."+api.Domain
	})
}

// kindsOf returns the function models.kinds. It returns the served group version kinds of a type.
// For types that belong to every group version, it returns the kinds in the given versions.
func (s *Service) kindsOf(versions []schema.GroupVersion) func(reflect.Type) []schema.GroupVersionKind {
	return func(typ reflect.Type) []schema.GroupVersionKind {
		if typ == reflect.TypeFor[metav1.WatchEvent]() || typ == reflect.TypeFor[metav1.DeleteOptions]() {
			var out []schema.GroupVersionKind
			for _, gv := range versions {
				out = append(out, gv.WithKind(typ.Name()))
			}
			return sortedGVKs(out)
		}
		return s.servedKinds(typ)
	}
}

// servedKinds returns the served group version kinds of a type, sorted.
func (s *Service) servedKinds(t reflect.Type) []schema.GroupVersionKind {
	obj, ok := reflect.New(t).Interface().(runtime.Object)
	if !ok {
		return nil
	}
	known, _, err := s.scheme().ObjectKinds(obj)
	if err != nil {
		return nil // not an object type of the API
	}
	var out []schema.GroupVersionKind
	for _, k := range known {
		if s.catalog.Serves(k.GroupVersion()) {
			out = append(out, k)
		}
	}
	return sortedGVKs(out)
}

// sortedGVKs sorts gvks in place and returns it.
func sortedGVKs(gvks []schema.GroupVersionKind) []schema.GroupVersionKind {
	slices.SortFunc(gvks, func(a, b schema.GroupVersionKind) int {
		return cmp.Or(strings.Compare(a.Group, b.Group), strings.Compare(a.Version, b.Version), strings.Compare(a.Kind, b.Kind))
	})
	return gvks
}
