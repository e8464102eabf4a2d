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
	"binnacle/services/apiserver/internal/openapi/typefacts"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/status"
)

// Group is a group version of custom resources.
type Group struct {
	GroupVersion schema.GroupVersion
	// Kinds as they are served.
	Kinds []*registry.Kind
	// Schemas returns the schema of a kind's objects, nil where there is none; it is
	// asked when the document is made, with what documents of the same group that are made
	// with it have read. Metadata, apiVersion and kind are added.
	Schemas func(r *Reading, kind string) *spec.Schema
	// Lenient has the kinds whose definitions keep unknown fields. OpenAPI v2 does not have
	// their schemas, since kubectl would reject those fields.
	Lenient map[string]bool
	// Hash changes when anything else of the group does; a group with the hash
	// of one served before keeps its document.
	Hash string
}

// Service serves the documents. Its methods may be called at the same time.
type Service struct {
	catalog *registry.Catalog
	scheme  func() *runtime.Scheme
	params  func() *parameters
	forms   forms
	enums   bool
	release string
	builtIn []*entry

	packer packer
	// turns2 and turns3 are how many documents are made at once.
	turns2, turns3 chan struct{}
	refuse         func(http.ResponseWriter, *http.Request, error)

	swaggers func(context.Context) []Swagger
	merging  sync.Mutex // guards merged; a leaf
	merged   *merged

	replacing sync.Mutex // orders calls of Replace
	current   atomic.Pointer[snapshot]
}

// entry is one v3 document and what it is made of.
type entry struct {
	path string // below /openapi/v3/
	// hash and name of a group of custom resources
	hash, group string
	paths       func() []path
	// schemas returns the models of custom resources; nil for built-in documents.
	schemas func(m *models, r *Reading) map[string]*spec.Schema
	// names are the models of custom resources.
	names []string
	doc   *document
}

// snapshot is the set of documents at one time. It does not change.
type snapshot struct {
	entries []*entry
	byPath  map[string]*entry
	others  map[string]Other // by path
	v2      *document
	index   shared[*index]
}

// Options say what else the documents tell of a server.
type Options struct {
	// CBOR is among the media types of built-in kinds.
	CBOR bool
	// NoEnums leaves out which values fields can have.
	NoEnums bool
	// Release is the version of the API, 1.33 by default.
	Release string
	// Refuse, if set, answers with an error, as a Status.
	Refuse func(http.ResponseWriter, *http.Request, error)
}

// New describes the kinds of a catalog; the scheme knows the types that each version is
// described by, and those of sub-resources. It is asked for with the first document.
func New(catalog *registry.Catalog, scheme func() *runtime.Scheme, o Options) (*Service, error) {
	s := &Service{catalog: catalog, scheme: sync.OnceValue(scheme), params: sync.OnceValue(newParameters), forms: formsOf(o.CBOR), enums: !o.NoEnums, refuse: o.Refuse,
		release: cmp.Or(o.Release, version.Major+"."+version.Minor)}
	// One of v2 is all that there is, and must not keep those of v3 waiting. A processor is left to those
	// who want something else.
	s.turns2, s.turns3 = make(chan struct{}, 1), make(chan struct{}, max(1, goruntime.GOMAXPROCS(0)-1))
	if s.refuse == nil {
		s.refuse = func(w http.ResponseWriter, _ *http.Request, err error) {
			http.Error(w, err.Error(), int(status.Of(err).Code))
		}
	}
	kinds := map[schema.GroupVersion][]*registry.Kind{}
	for _, k := range catalog.Kinds() {
		kinds[k.GroupVersion()] = append(kinds[k.GroupVersion()], k)
	}
	s.builtIn = s.roots()
	for _, g := range catalog.Groups() {
		if g.Name != "" {
			s.builtIn = append(s.builtIn, s.groupRoot(g.Name))
		}
		for _, v := range g.Versions {
			gv := schema.GroupVersion{Group: g.Name, Version: v}
			s.builtIn = append(s.builtIn, s.entry(apiPath(gv), func() []path {
				d := &describer{gv: gv, params: s.params(), forms: &s.forms, newObject: s.newObject}
				return d.group(sortedKinds(kinds[gv]))
			}))
		}
	}
	s.Replace(nil, nil)
	return s, nil
}

func (s *Service) newObject(kind schema.GroupVersionKind) (runtime.Object, error) {
	return s.scheme().New(kind)
}

func sortedKinds(kinds []*registry.Kind) []*registry.Kind {
	kinds = slices.Clone(kinds)
	sort.Slice(kinds, func(i, j int) bool { return kinds[i].Resource < kinds[j].Resource })
	return kinds
}

// roots describe what stands beside the groups.
func (s *Service) roots() []*entry {
	one := func(at, id, description, tagName string, result any) *entry {
		return s.entry(at, func() []path { return []path{s.rootPath("/"+at+"/", id, description, tagName, result)} })
	}
	versions := s.rootPath("/version/", "getCodeVersion", "get the version information for this server", "version", &apiversion.Info{})
	versions.operations[0].consumes, versions.operations[0].produces = []string{api.MediaJSON}, []string{api.MediaJSON}
	return []*entry{
		one("api", "getCoreAPIVersions", "get available API versions", "core", &metav1.APIVersions{}),
		one("apis", "getAPIVersions", "get available API versions", "apis", &metav1.APIGroupList{}),
		s.entry("version", func() []path { return []path{versions} }),
	}
}

// DescribeIssuer adds the documents by which others verify tokens of service accounts.
func (s *Service) DescribeIssuer() {
	one := func(at, id, description, tagName, media string) *entry {
		p := path{path: "/" + at + "/", operations: []operation{{
			method: http.MethodGet, id: id, description: description, tag: tagName, result: &model{},
			codes: []int{http.StatusOK}, produces: []string{media},
		}}}
		return s.entry(at, func() []path { return []path{p} })
	}
	s.builtIn = append(s.builtIn,
		one(".well-known/openid-configuration", "getServiceAccountIssuerOpenIDConfiguration",
			"get service account issuer OpenID configuration, also known as the 'OIDC discovery doc'", "WellKnown", api.MediaJSON),
		one("openid/v1/jwks", "getServiceAccountIssuerOpenIDKeyset",
			"get service account issuer OpenID JSON Web Key Set (contains public token verification keys)", "openid", "application/jwk-set+json"))
	s.Replace(nil, nil)
}

func (s *Service) groupRoot(group string) *entry {
	at := "apis/" + group
	return s.entry(at, func() []path {
		return []path{s.rootPath("/"+at+"/", "get"+camel(words(group))+"APIGroup", "get information of a group", tag(group, ""), &metav1.APIGroup{})}
	})
}

// entry is a document of a built-in group version, or of a path beside the groups.
func (s *Service) entry(at string, paths func() []path) *entry {
	e := &entry{path: at, paths: paths}
	e.doc = s.packer.newDocument(s.turns3, func(r *Reading) ([]byte, error) {
		facts, err := r.typeFacts()
		if err != nil {
			return nil, err
		}
		m := newModels(facts, s.kindsOf(allVersions(facts)), true, s.enums)
		doc := newV3(e.paths(), m, nil, spec.InfoProps{Title: apiTitle, Version: s.release})
		doc.Components.SecuritySchemes = securitySchemes()
		return doc.MarshalJSON()
	}, v3Proto)
	return e
}

// Replace sets the custom resources that are described and the group versions that
// others describe, in place of those set before.
func (s *Service) Replace(groups []Group, others []Other) {
	s.replacing.Lock()
	defer s.replacing.Unlock()
	old := s.current.Load()
	next := &snapshot{entries: slices.Clone(s.builtIn), byPath: map[string]*entry{}, others: map[string]Other{}}
	described := map[string]bool{}
	for _, e := range s.builtIn {
		described[e.path] = true
	}
	for i := range groups {
		g := &groups[i]
		at := apiPath(g.GroupVersion)
		if described[at] {
			continue
		}
		described[at] = true
		if old != nil && g.Hash != "" {
			if e := old.byPath[at]; e != nil && e.hash == g.Hash {
				next.entries = append(next.entries, e)
				continue
			}
		}
		next.entries = append(next.entries, s.customEntry(*g))
	}
	for _, e := range next.entries {
		next.byPath[e.path] = e
	}
	for _, o := range others {
		if at := apiPath(o.GroupVersion); !described[at] {
			next.others[at] = o
		}
	}
	if old != nil && slices.Equal(old.entries, next.entries) {
		next.v2 = old.v2 // the others alone are not what they were
		s.current.Store(next)
		return
	}
	next.v2 = s.packer.newDocument(s.turns2, func(*Reading) ([]byte, error) { return s.buildV2(next.entries) }, v2Proto)
	s.current.Store(next)
}

// buildV2 describes everything in one document.
func (s *Service) buildV2(entries []*entry) ([]byte, error) {
	doc, err := s.swagger(entries)
	if err != nil {
		return nil, err
	}
	return doc.MarshalJSON()
}

func (s *Service) swagger(entries []*entry) (*spec.Swagger, error) {
	r := newReadings()
	facts, err := r.facts()
	if err != nil {
		return nil, err
	}
	m := newModels(facts, s.kindsOf(allVersions(facts)), false, s.enums)
	var all []path
	extra := map[string]*spec.Schema{}
	for _, e := range entries {
		ps := e.paths()
		if e.schemas == nil {
			m.refer(ps)
		} else {
			e.rename(m)
			maps.Copy(extra, e.schemas(m, r.of(e)))
		}
		all = append(all, ps...)
	}
	return newV2(all, m, extra, s.release), nil
}

// allVersions returns the group versions of DeleteOptions and of watch events: all that the API
// has or had.
func allVersions(facts *typefacts.Facts) []schema.GroupVersion {
	out := slices.Clone(facts.Versions)
	for _, group := range []string{"apiextensions", "apiregistration"} {
		for _, v := range []string{"v1", "v1beta1"} {
			out = append(out, schema.GroupVersion{Group: group + "." + api.Domain, Version: v})
		}
	}
	return out
}

// customVersions returns the group versions of DeleteOptions in the documents of custom
// resources, which Kubernetes takes from client-go: without the groups that only servers know.
func customVersions(facts *typefacts.Facts) []schema.GroupVersion {
	return slices.DeleteFunc(slices.Clone(facts.Versions), func(gv schema.GroupVersion) bool {
		return gv.Group == "admission."+api.Domain || gv.Group == "imagepolicy."+api.Domain
	})
}

// kindsOf returns the group version kinds of types: the served ones, and for types of every
// group version those of the given versions.
func (s *Service) kindsOf(versions []schema.GroupVersion) func(reflect.Type) []schema.GroupVersionKind {
	return func(t reflect.Type) []schema.GroupVersionKind {
		if t == reflect.TypeFor[metav1.WatchEvent]() || t == reflect.TypeFor[metav1.DeleteOptions]() {
			var out []schema.GroupVersionKind
			for _, gv := range versions {
				out = append(out, gv.WithKind(t.Name()))
			}
			return sortedGVKs(out)
		}
		return s.servedAs(t)
	}
}

// servedAs are the served group version kinds of a type.
func (s *Service) servedAs(t reflect.Type) []schema.GroupVersionKind {
	obj, ok := reflect.New(t).Interface().(runtime.Object)
	if !ok {
		return nil
	}
	known, _, err := s.scheme().ObjectKinds(obj)
	if err != nil {
		return nil // not a type of the API's own
	}
	var out []schema.GroupVersionKind
	for _, k := range known {
		if s.catalog.Serves(k.GroupVersion()) {
			out = append(out, k)
		}
	}
	return sortedGVKs(out)
}

func sortedGVKs(gvks []schema.GroupVersionKind) []schema.GroupVersionKind {
	slices.SortFunc(gvks, func(a, b schema.GroupVersionKind) int {
		return cmp.Or(strings.Compare(a.Group, b.Group), strings.Compare(a.Version, b.Version), strings.Compare(a.Kind, b.Kind))
	})
	return gvks
}
