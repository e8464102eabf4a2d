package build

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"binnacle/services/apiserver/internal/api/aggregation"
	"binnacle/services/apiserver/internal/api/discovery"
	"binnacle/services/apiserver/internal/api/openapi"
	"binnacle/services/apiserver/internal/controllers/crdinformer"
	"binnacle/services/apiserver/internal/crd/kind"
	"binnacle/services/apiserver/internal/crd/structural"
	"binnacle/services/apiserver/internal/registry"
	apiextensionsv1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
)

// described are the documents about the API, which follow the definitions when
// somebody asks for them. Of the group versions those are described anew that changed.
type described struct {
	docs *discovery.Documents
	spec *openapi.Service
	// foreign are the group versions of others.
	foreign func() []discovery.GroupVersion
	others  func() []openapi.Other
	// announced are the group versions that APIServices name without a server.
	announced func() []discovery.GroupVersion

	mu       sync.Mutex
	versions map[schema.GroupVersion]*describedVersion
	changed  bool
}

// describedVersion is a group version of custom resources.
type describedVersion struct {
	// definitions that serve it, by their names.
	definitions map[string]*kind.Definition
	// current tells that version and group are what the definitions say.
	current bool
	version discovery.GroupVersion
	group   openapi.Group
}

func newDescribed() *described {
	return &described{versions: map[schema.GroupVersion]*describedVersion{}}
}

// serve says where the documents are.
func (d *described) serve(docs *discovery.Documents, spec *openapi.Service, remotes *aggregation.Aggregator) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.docs, d.spec, d.foreign, d.others, d.announced = docs, spec, remotes.Versions, remotes.Others, remotes.Announced
	spec.Others(remotes.Swaggers)
}

// serving reports whether the documents have a place.
func (d *described) serving() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.docs != nil && d.spec != nil
}

// foreignChanged tells that others serve something else.
func (d *described) foreignChanged() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.changed = true
}

// set takes up changed definitions. Versions that no definition serves any more are dropped.
func (d *described) set(changed []crdinformer.Changed) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.changed = true
	for _, c := range changed {
		if c.Before != nil {
			for _, k := range c.Before.Kinds {
				delete(d.version(k).definitions, c.Before.Name)
			}
		}
		if c.Now != nil {
			for _, k := range c.Now.Kinds {
				d.version(k).definitions[c.Now.Name] = c.Now
			}
		}
		if c.Before == nil {
			continue
		}
		for _, k := range c.Before.Kinds {
			if gv := k.GroupVersion(); d.versions[gv] != nil && len(d.versions[gv].definitions) == 0 {
				delete(d.versions, gv)
			}
		}
	}
}

// version is that of a kind, which is to be described anew.
func (d *described) version(k *registry.Kind) *describedVersion {
	gv := k.GroupVersion()
	v := d.versions[gv]
	if v == nil {
		v = &describedVersion{definitions: map[string]*kind.Definition{}}
		d.versions[gv] = v
	}
	v.current = false
	return v
}

// before brings the documents up to date before next answers about the API.
func (d *described) before(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if describes(r.URL.Path) {
			d.refresh()
		}
		next.ServeHTTP(w, r)
	})
}

// describes tells whether there may be a document about the API at a path.
func describes(path string) bool {
	switch {
	case strings.HasPrefix(path, "/api/"): // of built-in kinds alone
		return false
	case strings.HasPrefix(path, "/apis/"): // below a group version there are objects
		return strings.Count(strings.Trim(path, "/"), "/") <= 2
	}
	return path == "" || path == "/" || path == "/api" || path == "/apis" || strings.HasPrefix(path, "/openapi/")
}

// Priorities of the group versions of custom resources.
const (
	customGroupPriority   = 1000
	customVersionPriority = 100
)

func (d *described) refresh() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.changed {
		return
	}
	d.changed = false
	foreign := d.foreign()
	elsewhere := map[schema.GroupVersion]bool{}
	for _, v := range foreign {
		elsewhere[schema.GroupVersion{Group: v.Group, Version: v.Version}] = true
	}
	var versions []discovery.GroupVersion
	var groups []openapi.Group
	for _, gv := range slices.SortedFunc(maps.Keys(d.versions), func(a, b schema.GroupVersion) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Version, b.Version))
	}) {
		v := d.versions[gv]
		if elsewhere[gv] {
			continue
		}
		v.describe(gv)
		versions, groups = append(versions, v.version), append(groups, v.group)
	}
	versions = append(versions, foreign...)
	for _, v := range d.announced() {
		if gv := (schema.GroupVersion{Group: v.Group, Version: v.Version}); d.versions[gv] == nil && !elsewhere[gv] {
			versions = append(versions, v)
		}
	}
	d.docs.Replace(versions)
	d.spec.Replace(groups, d.others())
}

// describe makes of the definitions what the documents are made of.
func (v *describedVersion) describe(gv schema.GroupVersion) {
	if v.current {
		return
	}
	var kinds []*registry.Kind
	defs, lenient := make(map[string]*kind.Definition, len(v.definitions)), map[string]bool{}
	var hash strings.Builder
	for _, name := range slices.Sorted(maps.Keys(v.definitions)) {
		def := v.definitions[name]
		for _, k := range def.Kinds {
			if k.GroupVersion() == gv {
				kinds, defs[k.Kind], lenient[k.Kind] = append(kinds, k), def, def.Spec.PreserveUnknownFields
			}
		}
		fmt.Fprintf(&hash, "%s@%s/%x ", def.Name, def.ResourceVersion, def.Sum)
	}
	v.version = discovery.GroupVersion{
		Group: gv.Group, Version: gv.Version, GroupPriority: customGroupPriority, VersionPriority: customVersionPriority,
		Resources: resourcesOf(kinds), Named: true,
	}
	v.group = openapi.Group{
		GroupVersion: gv, Kinds: kinds, Hash: hash.String(), Lenient: lenient,
		Schemas: func(r *openapi.Reading, kind string) *spec.Schema {
			return schemaOf(wholeOf(r, defs[kind]), gv.Version)
		},
	}
	v.current = true
}

// resourcesOf describes kinds, with their status before their scale.
func resourcesOf(kinds []*registry.Kind) []metav1.APIResource {
	all := discovery.Resources(kinds)
	slices.SortStableFunc(all, func(a, b metav1.APIResource) int {
		x, sub, _ := strings.Cut(a.Name, "/")
		y, other, _ := strings.Cut(b.Name, "/")
		if x != y || sub == "" || other == "" {
			return 0
		}
		return strings.Compare(other, sub)
	})
	return all
}

// wholeOf is a definition to read schemas from. One that has more versions is read once for all of them that
// are described together.
func wholeOf(r *openapi.Reading, d *kind.Definition) *kind.Whole {
	if len(d.Kinds) == 1 {
		return d.Whole()
	}
	return r.Once(d, func() any { return d.Whole() }).(*kind.Whole)
}

// schemaOf returns the schema of a version in the form of the OpenAPI documents. It returns
// nil if the version has no schema, or a stored one that is not structural.
func schemaOf(d *kind.Whole, version string) *spec.Schema {
	props, err := d.Schema(version)
	if err != nil || props == nil || !isStructural(props) {
		return nil
	}
	s := &spec.Schema{}
	if s.UnmarshalJSON(props.AppendJSON(nil)) != nil {
		return nil
	}
	return s
}

func isStructural(s *apiextensionsv1.JSONSchemaProps) bool {
	return structural.Unsupported(s) == nil && len(structural.Check(nil, s)) == 0 && !structural.Any(s, func(s *apiextensionsv1.JSONSchemaProps) bool {
		switch s.Type {
		case "", "array", "boolean", "integer", "number", "object", "string":
			return false
		}
		return true
	})
}
