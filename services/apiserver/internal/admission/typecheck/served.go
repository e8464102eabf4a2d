package typecheck

import (
	"iter"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/api/customdocs"
	"binnacle/services/apiserver/internal/api/openapi"
	"binnacle/services/apiserver/internal/crd/kind"
	"binnacle/services/apiserver/internal/registry"
)

// ServedSchemas returns the schemas of the resources that are served. It is safe for concurrent use.
type ServedSchemas struct {
	scheme  *runtime.Scheme
	builtIn *registry.Catalog
	kinds   *apiset.Live

	mu sync.Mutex // leaf lock
	// defined holds the served definitions.
	defined iter.Seq[*kind.CRD]
}

// NewServedSchemas returns the schemas of built-in kinds and, after the first Set, of defined ones.
func NewServedSchemas(scheme *runtime.Scheme, builtIn *registry.Catalog, kinds *apiset.Live) *ServedSchemas {
	return &ServedSchemas{scheme: scheme, builtIn: builtIn, kinds: kinds, defined: slices.Values[[]*kind.CRD](nil)}
}

// Set applies changed definitions and returns the resources whose schemas may differ.
func (s *ServedSchemas) Set(update kind.CRDUpdate) (other []schema.GroupResource) {
	s.mu.Lock()
	s.defined = update.All
	s.mu.Unlock()
	for _, c := range update.Changed {
		d := c.New
		if d == nil {
			d = c.Old
		} else if c.Old != nil && c.Old.SameVersion(d) {
			continue // unchanged
		}
		other = append(other, schema.GroupResource{Group: d.Spec.Group, Resource: d.Status.AcceptedNames.Plural})
	}
	return other
}

// Schemas returns the schemas of the resources that are served now.
func (s *ServedSchemas) Schemas() Schemas {
	out := &servedSchemas{
		Schemas: openapi.NewSchemas(s.scheme), kinds: slices.Concat(s.builtIn.Kinds(), s.kinds.Current().Custom()),
		defined: map[schema.GroupKind]*kind.CRD{},
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for d := range s.defined {
		out.defined[schema.GroupKind{Group: d.Spec.Group, Kind: d.Status.AcceptedNames.Kind}] = d
	}
	return out
}

// servedSchemas holds the schemas of the resources that are served now.
type servedSchemas struct {
	*openapi.Schemas
	kinds   []*registry.Kind
	defined map[schema.GroupKind]*kind.CRD
}

var _ Schemas = (*servedSchemas)(nil)

// Kinds implements Schemas.
func (s *servedSchemas) Kinds(group, version, resource string) (found []schema.GroupVersionKind) {
	resource = strings.ToLower(resource)
	for _, k := range s.kinds {
		if k.Version == version && (k.Resource == resource || k.Singular == resource) && (group == "" || k.Group == group) {
			found = append(found, k.GVK())
		}
	}
	return found
}

// Schema implements Schemas.
func (s *servedSchemas) Schema(gvk schema.GroupVersionKind) *spec.Schema {
	if d := s.defined[gvk.GroupKind()]; d != nil && slices.ContainsFunc(s.kinds, func(k *registry.Kind) bool { return k.GVK() == gvk }) {
		return s.Custom(gvk, customdocs.SchemaOf(d.Full(), gvk.Version))
	}
	return s.BuiltIn(gvk)
}
