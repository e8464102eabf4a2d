package customdocs

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
	"binnacle/services/apiserver/internal/crd/kind"
	"binnacle/services/apiserver/internal/crd/structural"
	"binnacle/services/apiserver/internal/registry"
	apiextensionsv1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
)

// Updater updates the discovery and OpenAPI documents when they are requested after a change of
// definitions. It describes only the group versions that changed.
type Updater struct {
	docs *discovery.Documents
	spec *openapi.Service
	// extensions returns the group versions of extension servers.
	extensions        func() []discovery.GroupVersion
	extensionSwaggers func() []openapi.RemoteGroupVersion
	// announced returns the group versions of APIServices without a server.
	announced func() []discovery.GroupVersion

	mu       sync.Mutex
	versions map[schema.GroupVersion]*customVersion
	changed  bool
}

// customVersion is a group version of custom resources.
type customVersion struct {
	// definitions serve the group version, by their names.
	definitions map[string]*kind.CRD
	// current reports whether version and group match the definitions.
	current bool
	version discovery.GroupVersion
	group   openapi.Group
}

// New returns an Updater of documents. It follows the changes of extension servers.
func New(docs *discovery.Documents, swagger *openapi.Service, remotes *aggregation.Aggregator) *Updater {
	u := &Updater{
		docs: docs, spec: swagger, versions: map[schema.GroupVersion]*customVersion{},
		extensions: remotes.Versions, extensionSwaggers: remotes.RemoteGroupVersions, announced: remotes.LocalGroupVersions,
	}
	swagger.SetRemoteV2Documents(remotes.Swaggers)
	remotes.OnChange(u.ExtensionsChanged)
	return u
}

// ExtensionsChanged records that extension servers serve other resources.
func (u *Updater) ExtensionsChanged() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.changed = true
}

// Set applies changed definitions. It drops versions that no definition serves any more.
func (u *Updater) Set(changed []kind.CRDChange) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.changed = true
	for _, c := range changed {
		if c.Old != nil {
			for _, k := range c.Old.Kinds {
				delete(u.version(k).definitions, c.Old.Name)
			}
		}
		if c.New != nil {
			for _, k := range c.New.Kinds {
				u.version(k).definitions[c.New.Name] = c.New
			}
		}
		if c.Old == nil {
			continue
		}
		for _, k := range c.Old.Kinds {
			if gv := k.GroupVersion(); u.versions[gv] != nil && len(u.versions[gv].definitions) == 0 {
				delete(u.versions, gv)
			}
		}
	}
}

// version returns the group version of a kind, marked as changed.
func (u *Updater) version(k *registry.Kind) *customVersion {
	gv := k.GroupVersion()
	v := u.versions[gv]
	if v == nil {
		v = &customVersion{definitions: map[string]*kind.CRD{}}
		u.versions[gv] = v
	}
	v.current = false
	return v
}

// WithRefresh updates the documents before next serves a request for one of them.
func (u *Updater) WithRefresh(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isDocumentPath(r.URL.Path) {
			u.refresh()
		}
		next.ServeHTTP(w, r)
	})
}

// isDocumentPath reports whether a document about the API may exist at a path.
func isDocumentPath(path string) bool {
	switch {
	case strings.HasPrefix(path, "/api/"): // built-in kinds only
		return false
	case strings.HasPrefix(path, "/apis/"): // paths below a group version are objects
		return strings.Count(strings.Trim(path, "/"), "/") <= 2
	}
	return path == "" || path == "/" || path == "/api" || path == "/apis" || strings.HasPrefix(path, "/openapi/")
}

// Priorities of the group versions of custom resources.
const (
	GroupPriority   = 1000
	VersionPriority = 100
)

// refresh updates discovery and OpenAPI if group versions have changed.
func (u *Updater) refresh() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.changed {
		return
	}
	u.changed = false
	extensions := u.extensions()
	served := map[schema.GroupVersion]bool{}
	for _, v := range extensions {
		served[schema.GroupVersion{Group: v.Group, Version: v.Version}] = true
	}
	var versions []discovery.GroupVersion
	var groups []openapi.Group
	for _, gv := range slices.SortedFunc(maps.Keys(u.versions), func(a, b schema.GroupVersion) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Version, b.Version))
	}) {
		v := u.versions[gv]
		if served[gv] {
			continue
		}
		v.describe(gv)
		versions, groups = append(versions, v.version), append(groups, v.group)
	}
	versions = append(versions, extensions...)
	for _, v := range u.announced() {
		if gv := (schema.GroupVersion{Group: v.Group, Version: v.Version}); u.versions[gv] == nil && !served[gv] {
			versions = append(versions, v)
		}
	}
	u.docs.Replace(versions)
	u.spec.Replace(groups, u.extensionSwaggers())
}

// describe computes version and group from the definitions.
func (v *customVersion) describe(gv schema.GroupVersion) {
	if v.current {
		return
	}
	var kinds []*registry.Kind
	definitions := make(map[string]*kind.CRD, len(v.definitions))
	preservesUnknownFields := map[string]bool{}
	var hash strings.Builder
	for _, name := range slices.Sorted(maps.Keys(v.definitions)) {
		definition := v.definitions[name]
		for _, k := range definition.Kinds {
			if k.GroupVersion() == gv {
				kinds, definitions[k.Kind], preservesUnknownFields[k.Kind] = append(kinds, k), definition, definition.Spec.PreserveUnknownFields
			}
		}
		fmt.Fprintf(&hash, "%s@%s/%x ", definition.Name, definition.ResourceVersion, definition.Sum)
	}
	v.version = discovery.GroupVersion{
		Group: gv.Group, Version: gv.Version, GroupPriority: GroupPriority, VersionPriority: VersionPriority,
		Resources: resourcesOf(kinds), Named: true,
	}
	v.group = openapi.Group{
		GroupVersion: gv, Kinds: kinds, Hash: hash.String(), Lenient: preservesUnknownFields,
		Schemas: func(r *openapi.SchemaCache, kind string) *spec.Schema {
			return SchemaOf(fullDefinitionOf(r, definitions[kind]), gv.Version)
		},
	}
	v.current = true
}

// resourcesOf describes kinds. The status of a resource precedes its scale.
func resourcesOf(kinds []*registry.Kind) []metav1.APIResource {
	resources := discovery.Resources(kinds)
	slices.SortStableFunc(resources, func(a, b metav1.APIResource) int {
		nameA, subA, _ := strings.Cut(a.Name, "/")
		nameB, subB, _ := strings.Cut(b.Name, "/")
		if nameA != nameB || subA == "" || subB == "" {
			return 0
		}
		return strings.Compare(subB, subA)
	})
	return resources
}

// fullDefinitionOf returns a definition with its schemas. A definition with several versions is
// decoded once for all versions that are described together.
func fullDefinitionOf(r *openapi.SchemaCache, d *kind.CRD) *kind.FullDefinition {
	if len(d.Kinds) == 1 {
		return d.Full()
	}
	return r.Memoize(d, func() any { return d.Full() }).(*kind.FullDefinition)
}

// SchemaOf returns the schema of a version in the form of the OpenAPI documents. It returns
// nil if the version has no schema, or a stored one that is not structural.
func SchemaOf(d *kind.FullDefinition, version string) *spec.Schema {
	props, err := d.Schema(version)
	if err != nil || props == nil || !isStructural(props) {
		return nil
	}
	s := &spec.Schema{}
	if s.UnmarshalJSON(props.AppendJSON(nil)) != nil {
		return nil
	}
	dropExamples(s)
	return s
}

// dropExamples removes the examples and external documents of a structural schema, which Kubernetes
// does not publish.
func dropExamples(s *spec.Schema) {
	if s == nil {
		return
	}
	s.Example, s.ExternalDocs = nil, nil
	for name, p := range s.Properties {
		dropExamples(&p)
		s.Properties[name] = p
	}
	if s.Items != nil {
		dropExamples(s.Items.Schema)
	}
	if s.AdditionalProperties != nil {
		dropExamples(s.AdditionalProperties.Schema)
	}
	for _, list := range [][]spec.Schema{s.AllOf, s.AnyOf, s.OneOf} {
		for i := range list {
			dropExamples(&list[i])
		}
	}
	dropExamples(s.Not)
}

func isStructural(s *apiextensionsv1.JSONSchemaProps) bool {
	return structural.Unsupported(s) == nil && len(structural.Check(nil, s)) == 0 && !structural.AnySchema(s, func(s *apiextensionsv1.JSONSchemaProps) bool {
		switch s.Type {
		case "", "array", "boolean", "integer", "number", "object", "string":
			return false
		}
		return true
	})
}
