package build

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/libs/features"
	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/controllers/crdinformer"
	"binnacle/services/apiserver/internal/crd/conversion"
	"binnacle/services/apiserver/internal/crd/definition"
	"binnacle/services/apiserver/internal/crd/kind"
	"binnacle/services/apiserver/internal/crd/rules"
	"binnacle/services/apiserver/internal/proxy/webhookclient"
	apiextensionsv1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
	"binnacle/services/apiserver/internal/rest/internalclient"
	"binnacle/services/apiserver/internal/storage"
)

func definitions() schema.GroupVersionResource {
	return apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions")
}

// customResources serves the resources that definitions define.
type customResources struct {
	// informer serves defined resources. controller maintains the statuses of definitions and
	// deletes the objects of deleted ones.
	informer   *crdinformer.Follower
	controller *definition.Controller
}

func newCustomResources(b *base, k *caches, s *stores, sets *apiSets, n *network) (*customResources, error) {
	informer, err := newDefinitionInformer(b, k, sets, n)
	if err != nil {
		return nil, err
	}
	c := &customResources{informer: informer, controller: definition.NewController(definition.Config{
		Definitions: sets.allKinds.Current().Resource(definitions()).Store,
		Client:      definitionStatuses{sets.client},
		Instances:   &definition.Stored{Store: s.values, Root: b.root, Now: time.Now},
		Definable:   k.definable(),
		Logger:      b.log, Now: time.Now,
	})}
	b.life.inBackground("custom resources", c.informer.Run)
	b.life.whileServing("definitions", c.controller.Run)
	return c, nil
}

// settled waits until a write of a definition is processed: the controller has set its status, and
// requests see the resulting API set.
func (c *customResources) settled(ctx context.Context, revision int64) {
	c.controller.Settled(ctx, revision)
	c.informer.Settled(ctx, revision)
}

// definitionStatuses writes the statuses of definitions as the server itself.
type definitionStatuses struct{ client *internalclient.Client }

// PatchStatus implements definition.Client.
func (s definitionStatuses) PatchStatus(ctx context.Context, name string, patch any, while ...storage.Precondition) error {
	gvr := definitions()
	return s.client.Patch(ctx, internalclient.Collection(gvr.Group, gvr.Version, gvr.Resource, "").Named(name).Subresource("status"), patch, while...)
}

// newDefinitionInformer creates the informer that serves the defined resources.
func newDefinitionInformer(b *base, k *caches, sets *apiSets, n *network) (*crdinformer.Follower, error) {
	resource := sets.allKinds.Current().Resource(definitions())
	caller, err := conversion.NewCaller(n.services, n.dialers, webhookclient.NewResponseLimiter(b.bounds.WebhookResponses), b.calls)
	if err != nil {
		return nil, err
	}
	b.life.onClose(caller.Close)
	compiler := rules.NewCompiler()
	compiler.NoRatcheting = !b.gates.Enabled(features.CRDValidationRatcheting)
	compiler.Metrics = rules.NewMetrics(b.metrics)
	definable := k.definable()
	return crdinformer.New(crdinformer.Config{
		Definitions: resource.Store,
		// As in Kubernetes, all paths of a group with built-in kinds belong to the built-in kinds.
		Definable: func(group, resource string) bool {
			return !sets.kinds.Current().BuiltIn(group) && definable(group, resource)
		},
		Maker: &kind.Maker{
			Rules: compiler, NoSelectableFields: !b.gates.Enabled(features.CustomResourceFieldSelectors),
			Conversion: func(d *kind.Definition) kind.Conversion {
				if w := conversion.New(caller, d.CustomResourceDefinition); w != nil {
					return w
				}
				return nil
			},
		},
		Builder: sets.builder,
		Decode: func(stored []byte, revision int64) (*apiextensionsv1.CustomResourceDefinition, error) {
			obj, err := resource.Coder.DecodeStored(stored, revision)
			if err != nil {
				return nil, err
			}
			d, ok := obj.(*apiextensionsv1.CustomResourceDefinition)
			if !ok {
				return nil, fmt.Errorf("%T is no definition", obj)
			}
			return d, nil
		},
		Live:   []*apiset.Live{sets.kinds, sets.allKinds},
		Logger: b.log,
	}), nil
}
