package build

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"binnacle/libs/features"
	"binnacle/libs/version"
	"binnacle/services/apiserver/internal/api/aggregation"
	"binnacle/services/apiserver/internal/api/discovery"
	"binnacle/services/apiserver/internal/api/kinds/builtin"
	"binnacle/services/apiserver/internal/api/openapi"
	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/config"
	"binnacle/services/apiserver/internal/controllers/crdinformer"
	"binnacle/services/apiserver/internal/crd/kind"
	"binnacle/services/apiserver/internal/crd/structural"
	"binnacle/services/apiserver/internal/registry"
	apiextensionsv1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
	"binnacle/services/apiserver/internal/rest/patch"
	"binnacle/services/apiserver/internal/rest/responsewriters"
)

// documents updates the discovery and OpenAPI documents when they are requested after a change of
// definitions. It describes only the group versions that changed.
type documents struct {
	docs *discovery.Documents
	spec *openapi.Service
	// extensions returns the group versions of extension servers.
	extensions        func() []discovery.GroupVersion
	extensionSwaggers func() []openapi.Other
	// announced returns the group versions of APIServices without a server.
	announced func() []discovery.GroupVersion

	mu       sync.Mutex
	versions map[schema.GroupVersion]*customVersion
	changed  bool
}

// customVersion is a group version of custom resources.
type customVersion struct {
	// definitions serve the group version, by their names.
	definitions map[string]*kind.Definition
	// current reports whether version and group match the definitions.
	current bool
	version discovery.GroupVersion
	group   openapi.Group
}

// newDocuments creates the documents, which follow definitions and extension servers. paths returns
// the paths that are served in addition to the API.
func newDocuments(b *base, o *config.Options, c *catalogs, respond responsewriters.Responder, issuer bool, paths func() []string, remotes *aggregation.Aggregator, informer *crdinformer.Follower) (*documents, error) {
	minor := o.Compatibility.Emulation().Minor
	docs, err := discovery.New(c.served, respond.Object, discovery.WithServerAddress(b.address), discovery.WithPaths(paths), discovery.WithVersionPriority(builtin.VersionPriority), discovery.WithVersion(version.Emulating(minor)))
	if err != nil {
		return nil, err
	}
	swagger, err := openapi.New(c.served, builtin.Documented, openapi.Options{CBOR: respond.Media.CBOR, Patches: patch.MediaTypes(true, respond.Media.CBOR), CustomPatches: patch.MediaTypes(false, false), Release: fmt.Sprintf("%s.%d", version.Major, minor), NoEnums: !b.gates.Enabled(features.OpenAPIEnums), Refuse: respond.Error})
	if err != nil {
		return nil, err
	}
	if issuer {
		swagger.DescribeIssuer()
	}
	d := &documents{
		docs: docs, spec: swagger, versions: map[schema.GroupVersion]*customVersion{},
		extensions: remotes.Versions, extensionSwaggers: remotes.Others, announced: remotes.Announced,
	}
	swagger.Others(remotes.Swaggers)
	informer.OnSwapped(func(s kind.Update) { d.set(s.Changed) })
	remotes.OnChange(d.extensionsChanged)
	return d, nil
}

// extensionsChanged records that extension servers serve other resources.
func (d *documents) extensionsChanged() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.changed = true
}

// set applies changed definitions. It drops versions that no definition serves any more.
func (d *documents) set(changed []kind.Change) {
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

// version returns the group version of a kind, marked as changed.
func (d *documents) version(k *registry.Kind) *customVersion {
	gv := k.GroupVersion()
	v := d.versions[gv]
	if v == nil {
		v = &customVersion{definitions: map[string]*kind.Definition{}}
		d.versions[gv] = v
	}
	v.current = false
	return v
}

// withRefresh updates the documents before next serves a request for one of them.
func (d *documents) withRefresh(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isDocumentPath(r.URL.Path) {
			d.refresh()
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
	customGroupPriority   = 1000
	customVersionPriority = 100
)

func (d *documents) refresh() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.changed {
		return
	}
	d.changed = false
	extensions := d.extensions()
	served := map[schema.GroupVersion]bool{}
	for _, v := range extensions {
		served[schema.GroupVersion{Group: v.Group, Version: v.Version}] = true
	}
	var versions []discovery.GroupVersion
	var groups []openapi.Group
	for _, gv := range slices.SortedFunc(maps.Keys(d.versions), func(a, b schema.GroupVersion) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Version, b.Version))
	}) {
		v := d.versions[gv]
		if served[gv] {
			continue
		}
		v.describe(gv)
		versions, groups = append(versions, v.version), append(groups, v.group)
	}
	versions = append(versions, extensions...)
	for _, v := range d.announced() {
		if gv := (schema.GroupVersion{Group: v.Group, Version: v.Version}); d.versions[gv] == nil && !served[gv] {
			versions = append(versions, v)
		}
	}
	d.docs.Replace(versions)
	d.spec.Replace(groups, d.extensionSwaggers())
}

// describe computes version and group from the definitions.
func (v *customVersion) describe(gv schema.GroupVersion) {
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

// resourcesOf describes kinds. The status of a resource precedes its scale.
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

// wholeOf returns a definition with its schemas. A definition with several versions is decoded once
// for all versions that are described together.
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

// followAPIServices adds a task that follows the APIServices.
func followAPIServices(b *base, k *caches, remotes *aggregation.Aggregator, d *documents, v *customVersions) {
	store := k.lookup(apiServiceResource()).Store
	b.life.whileServing("apiservices of extension servers", func(ctx context.Context) error {
		return followChanges(ctx, store, func([]watchcache.Event) {
			d.extensionsChanged()
			v.wake()
			remotes.Wake()
		})
	})
}
