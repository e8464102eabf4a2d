package build

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	admissionapply "k8s.io/client-go/applyconfigurations/admissionregistration/v1"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"binnacle/services/apiserver/internal/admission/typecheck"
	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/api/customdocs"
	"binnacle/services/apiserver/internal/api/openapi"
	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/cel/expressions"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/controllers/crdinformer"
	"binnacle/services/apiserver/internal/crd/kind"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/rest/internalclient"
)

// typeChecks maintains the type-checking results in the statuses of admission policies.
type typeChecks struct {
	keeper *typecheck.Keeper
	codec  *codec.Codec
	served *registry.Catalog
	kinds  *apiset.Live

	mu sync.Mutex // a leaf
	// defined holds the served definitions.
	defined iter.Seq[*kind.Definition]
}

// newTypeChecks follows definitions. The checks run if they are on.
func newTypeChecks(b *base, c *catalogs, sets *apiSets, informer *crdinformer.Follower, compiler func() (*expressions.Compiler, error), on bool) *typeChecks {
	t := &typeChecks{codec: c.codec, served: c.served, kinds: sets.kinds, defined: slices.Values[[]*kind.Definition](nil)}
	k := sets.allKinds.Current().Resource(admissionv1.SchemeGroupVersion.WithResource("validatingadmissionpolicies"))
	t.keeper = typecheck.New(typecheck.Config{
		Policies: k.Store,
		Decode: func(e *watchcache.Entry) (*admissionv1.ValidatingAdmissionPolicy, error) {
			obj, err := k.Coder.DecodeStored(e.Stored(), e.Revision)
			if err != nil {
				return nil, err
			}
			policy, ok := obj.(*admissionv1.ValidatingAdmissionPolicy)
			if !ok {
				return nil, fmt.Errorf("%T is no policy", obj)
			}
			return policy, nil
		},
		Schemas:  func() typecheck.Schemas { return t.schemas() },
		Settled:  informer.Settled,
		Compiler: compiler, Client: policyStatuses{sets.client}, Logger: b.log,
	})
	informer.OnSwapped(t.set)
	if on {
		b.life.whileServing("types of admission policies", t.keeper.Run)
	}
	return t
}

// set applies changed definitions.
func (t *typeChecks) set(s kind.Update) {
	t.mu.Lock()
	t.defined = s.All
	t.mu.Unlock()
	var other []schema.GroupResource
	for _, c := range s.Changed {
		d := c.Now
		if d == nil {
			d = c.Before
		} else if c.Before != nil && c.Before.Same(d) {
			continue // unchanged
		}
		other = append(other, schema.GroupResource{Group: d.Spec.Group, Resource: d.Status.AcceptedNames.Plural})
	}
	t.keeper.Redefined(other)
}

// policyStatuses writes the statuses of policies as the server itself.
type policyStatuses struct{ client *internalclient.Client }

// ApplyStatus implements typecheck.Client.
func (s policyStatuses) ApplyStatus(ctx context.Context, name string, wanted *admissionapply.ValidatingAdmissionPolicyApplyConfiguration) error {
	at := internalclient.Collection(admissionv1.GroupName, "v1", "validatingadmissionpolicies", "").Named(name).Subresource("status")
	return s.client.As(typecheck.Manager).Apply(ctx, at, wanted)
}

// typeSchemas holds the schemas of the resources that are served now.
type typeSchemas struct {
	*openapi.Schemas
	kinds   []*registry.Kind
	defined map[schema.GroupKind]*kind.Definition
}

var _ typecheck.Schemas = (*typeSchemas)(nil)

func (t *typeChecks) schemas() *typeSchemas {
	s := &typeSchemas{
		Schemas: openapi.NewSchemas(t.codec.Scheme()), kinds: slices.Concat(t.served.Kinds(), t.kinds.Current().Custom()),
		defined: map[schema.GroupKind]*kind.Definition{},
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for d := range t.defined {
		s.defined[schema.GroupKind{Group: d.Spec.Group, Kind: d.Status.AcceptedNames.Kind}] = d
	}
	return s
}

// Kinds implements typecheck.Schemas.
func (s *typeSchemas) Kinds(group, version, resource string) (found []schema.GroupVersionKind) {
	resource = strings.ToLower(resource)
	for _, k := range s.kinds {
		if k.Version == version && (k.Resource == resource || k.Singular == resource) && (group == "" || k.Group == group) {
			found = append(found, k.GVK())
		}
	}
	return found
}

// Schema implements typecheck.Schemas.
func (s *typeSchemas) Schema(gvk schema.GroupVersionKind) *spec.Schema {
	if d := s.defined[gvk.GroupKind()]; d != nil && slices.ContainsFunc(s.kinds, func(k *registry.Kind) bool { return k.GVK() == gvk }) {
		return s.Custom(gvk, customdocs.SchemaOf(d.Whole(), gvk.Version))
	}
	return s.BuiltIn(gvk)
}
