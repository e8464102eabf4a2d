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

// ServedSchemas provides the schemas of the resources that are served at the time of a call. It is
// safe for concurrent use.
type ServedSchemas struct {
	scheme  *runtime.Scheme
	builtIn *registry.Catalog
	kinds   *apiset.Live

	mu sync.Mutex // leaf lock
	// defined iterates over the served definitions of custom resources.
	defined iter.Seq[*kind.CRD]
}

// NewServedSchemas returns a ServedSchemas of the built-in kinds. Set adds custom resources.
func NewServedSchemas(scheme *runtime.Scheme, builtIn *registry.Catalog, kinds *apiset.Live) *ServedSchemas {
	return &ServedSchemas{scheme: scheme, builtIn: builtIn, kinds: kinds, defined: slices.Values[[]*kind.CRD](nil)}
}

// Set applies changed definitions and returns the resources whose schemas may have changed.
func (s *ServedSchemas) Set(update kind.CRDUpdate) (changed []schema.GroupResource) {
	s.mu.Lock()
	s.defined = update.All
	s.mu.Unlock()
	for _, change := range update.Changed {
		definition := change.New
		if definition == nil {
			definition = change.Old // the definition was removed
		} else if change.Old != nil && change.Old.SameVersion(definition) {
			continue // unchanged
		}
		changed = append(changed, schema.GroupResource{Group: definition.Spec.Group, Resource: definition.Status.AcceptedNames.Plural})
	}
	return changed
}

// Schemas returns the schemas of the resources that are served now.
func (s *ServedSchemas) Schemas() Schemas {
	out := &servedSchemas{
		Schemas: openapi.NewSchemas(s.scheme), kinds: slices.Concat(s.builtIn.Kinds(), s.kinds.Current().Custom()),
		defined: map[schema.GroupKind]*kind.CRD{},
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for definition := range s.defined {
		out.defined[schema.GroupKind{Group: definition.Spec.Group, Kind: definition.Status.AcceptedNames.Kind}] = definition
	}
	return out
}

// servedSchemas implements Schemas.
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
	definition := s.defined[gvk.GroupKind()]
	if definition != nil && slices.ContainsFunc(s.kinds, func(k *registry.Kind) bool { return k.GVK() == gvk }) {
		return s.Custom(gvk, customdocs.SchemaOf(definition.Full(), gvk.Version))
	}
	return s.BuiltIn(gvk)
}
