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

// Updater adds custom resources and extension servers to the discovery and OpenAPI documents. After
// a change, it updates the documents when one of them is requested. It is safe for concurrent use.
type Updater struct {
	discovery *discovery.Documents
	openapi   *openapi.Service
	// remoteDiscovery and remoteOpenAPI return the group versions of extension servers.
	remoteDiscovery func() []discovery.GroupVersion
	remoteOpenAPI   func() []openapi.RemoteGroupVersion
	// localDiscovery returns the group versions of APIServices without a service.
	localDiscovery func() []discovery.GroupVersion

	mu       sync.Mutex
	versions map[schema.GroupVersion]*customVersion // group versions that definitions serve
	changed  bool                                   // the documents must be updated
}

// customVersion is a group version that definitions serve.
type customVersion struct {
	definitions map[string]*kind.CRD // by name
	// described reports whether discovery and openapi match the definitions.
	described bool
	discovery discovery.GroupVersion
	openapi   openapi.Group
}

// New returns an Updater of docs and spec. It subscribes to changes of the extension servers in
// remotes.
func New(docs *discovery.Documents, spec *openapi.Service, remotes *aggregation.Aggregator) *Updater {
	updater := &Updater{
		discovery: docs, openapi: spec, versions: map[schema.GroupVersion]*customVersion{},
		remoteDiscovery: remotes.Versions, remoteOpenAPI: remotes.RemoteGroupVersions, localDiscovery: remotes.LocalGroupVersions,
	}
	spec.SetRemoteV2Documents(remotes.Swaggers)
	remotes.OnChange(updater.ExtensionsChanged)
	return updater
}

// ExtensionsChanged records that the resources or the availability of extension servers have
// changed.
func (u *Updater) ExtensionsChanged() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.changed = true
}

// Set applies changed definitions. The next request for a document updates the documents.
func (u *Updater) Set(changed []kind.CRDChange) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.changed = true
	for _, crdChange := range changed {
		if crdChange.Old != nil {
			for _, k := range crdChange.Old.Kinds {
				delete(u.changedVersion(k).definitions, crdChange.Old.Name)
			}
		}
		if crdChange.New != nil {
			for _, k := range crdChange.New.Kinds {
				u.changedVersion(k).definitions[crdChange.New.Name] = crdChange.New
			}
		}
		if crdChange.Old == nil {
			continue
		}
		// Remove versions that no definition serves any more.
		for _, k := range crdChange.Old.Kinds {
			if gv := k.GroupVersion(); u.versions[gv] != nil && len(u.versions[gv].definitions) == 0 {
				delete(u.versions, gv)
			}
		}
	}
}

// changedVersion returns the customVersion with the group version of a kind, and records that it
// must be described again. The caller holds u.mu.
func (u *Updater) changedVersion(k *registry.Kind) *customVersion {
	gv := k.GroupVersion()
	v := u.versions[gv]
	if v == nil {
		v = &customVersion{definitions: map[string]*kind.CRD{}}
		u.versions[gv] = v
	}
	v.described = false
	return v
}

// WithRefresh returns a handler that updates the documents, if needed, before next serves a request
// for one of them.
func (u *Updater) WithRefresh(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isDocumentPath(r.URL.Path) {
			u.refresh()
		}
		next.ServeHTTP(w, r)
	})
}

// isDocumentPath reports whether a discovery or OpenAPI document that depends on definitions or
// extension servers may exist at a path.
func isDocumentPath(path string) bool {
	switch {
	case strings.HasPrefix(path, "/api/"): // only built-in kinds
		return false
	case strings.HasPrefix(path, "/apis/"): // longer paths are for objects
		return strings.Count(strings.Trim(path, "/"), "/") <= 2
	}
	return path == "" || path == "/" || path == "/api" || path == "/apis" || strings.HasPrefix(path, "/openapi/")
}

// Priorities of the group versions of custom resources.
const (
	GroupPriority   = 1000
	VersionPriority = 100
)

// refresh updates the documents if definitions or extension servers have changed. A group version
// of an extension server hides the same group version of custom resources.
func (u *Updater) refresh() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.changed {
		return
	}
	u.changed = false
	remote := u.remoteDiscovery()
	isRemote := map[schema.GroupVersion]bool{}
	for _, served := range remote {
		isRemote[schema.GroupVersion{Group: served.Group, Version: served.Version}] = true
	}
	var versions []discovery.GroupVersion
	var groups []openapi.Group
	for _, gv := range slices.SortedFunc(maps.Keys(u.versions), func(a, b schema.GroupVersion) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Version, b.Version))
	}) {
		customVersion := u.versions[gv]
		if isRemote[gv] {
			continue
		}
		customVersion.describe(gv)
		versions = append(versions, customVersion.discovery)
		groups = append(groups, customVersion.openapi)
	}
	versions = append(versions, remote...)
	for _, served := range u.localDiscovery() {
		gv := schema.GroupVersion{Group: served.Group, Version: served.Version}
		if u.versions[gv] == nil && !isRemote[gv] {
			versions = append(versions, served)
		}
	}
	u.discovery.Replace(versions)
	u.openapi.Replace(groups, u.remoteOpenAPI())
}

// describe sets v.discovery and v.openapi from the definitions, unless they are up to date.
// groupVersion is the group version of v.
func (v *customVersion) describe(groupVersion schema.GroupVersion) {
	if v.described {
		return
	}
	var kinds []*registry.Kind
	definitions := make(map[string]*kind.CRD, len(v.definitions))
	preservesUnknownFields := map[string]bool{}
	var hash strings.Builder
	for _, name := range slices.Sorted(maps.Keys(v.definitions)) {
		definition := v.definitions[name]
		for _, k := range definition.Kinds {
			if k.GroupVersion() == groupVersion {
				kinds = append(kinds, k)
				definitions[k.Kind] = definition
				preservesUnknownFields[k.Kind] = definition.Spec.PreserveUnknownFields
			}
		}
		fmt.Fprintf(&hash, "%s@%s/%x ", definition.Name, definition.ResourceVersion, definition.Sum)
	}
	v.discovery = discovery.GroupVersion{
		Group: groupVersion.Group, Version: groupVersion.Version, GroupPriority: GroupPriority, VersionPriority: VersionPriority,
		Resources: resourcesOf(kinds), FillResponseKinds: true,
	}
	v.openapi = openapi.Group{
		GroupVersion: groupVersion,
		Kinds:        kinds,
		Hash:         hash.String(),
		Lenient:      preservesUnknownFields,
		Schemas: func(cache *openapi.SchemaCache, kind string) *spec.Schema {
			return SchemaOf(fullDefinitionOf(cache, definitions[kind]), groupVersion.Version)
		},
	}
	v.described = true
}

// resourcesOf returns the discovery form of kinds and their subresources. As in Kubernetes, the
// subresource status of a custom resource precedes scale.
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

// fullDefinitionOf returns a definition with its schemas, which kind.CRD does not keep. cache belongs
// to the versions that are described together, so that a definition with several versions is decoded
// once for all of them.
func fullDefinitionOf(cache *openapi.SchemaCache, definition *kind.CRD) *kind.FullDefinition {
	if len(definition.Kinds) == 1 {
		return definition.Full()
	}
	return cache.Memoize(definition, func() any { return definition.Full() }).(*kind.FullDefinition)
}

// SchemaOf returns the schema of a version in the form of the OpenAPI documents. It returns nil if
// the version has no schema, or if the schema is not structural.
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

// dropExamples removes examples and external documents from a structural schema, because Kubernetes
// does not publish them.
func dropExamples(s *spec.Schema) {
	if s == nil {
		return
	}
	s.Example = nil
	s.ExternalDocs = nil
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

// isStructural reports whether a schema is structural and has only the types of JSON values.
func isStructural(s *apiextensionsv1.JSONSchemaProps) bool {
	return structural.Unsupported(s) == nil && len(structural.Check(nil, s)) == 0 &&
		!structural.AnySchema(s, func(s *apiextensionsv1.JSONSchemaProps) bool {
			switch s.Type {
			case "", "array", "boolean", "integer", "number", "object", "string":
				return false
			}
			return true
		})
}
