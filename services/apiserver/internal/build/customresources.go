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

// newDefinitionController creates the controller that maintains the statuses of definitions and
// deletes the objects of deleted ones.
func (p *parts) newDefinitionController() *definition.Keeper {
	return definition.NewKeeper(definition.Config{
		Definitions: p.allKinds.Current().Resource(definitions()).Store,
		Client:      definitionStatuses{p.client},
		Instances:   &definition.Stored{Store: p.values, Root: p.base.root, Now: time.Now},
		Definable:   p.definable(),
		Logger:      p.log, Now: time.Now,
	})
}

// definitionStatuses writes the statuses of definitions as the server itself.
type definitionStatuses struct{ client *internalclient.Client }

// PatchStatus implements definition.Client.
func (s definitionStatuses) PatchStatus(ctx context.Context, name string, patch any, while ...storage.Premise) error {
	gvr := definitions()
	return s.client.Patch(ctx, internalclient.Of(gvr.Group, gvr.Version, gvr.Resource, "").Named(name).Under("status"), patch, while...)
}

// conversions returns a function that creates the conversion webhook of a definition.
func (p *parts) conversions() (func(*kind.Definition) kind.Conversion, error) {
	caller, err := conversion.NewCaller(p.services(), p.webhookDialers(), webhookclient.NewResponseLimiter(), p.calls)
	if err != nil {
		return nil, err
	}
	p.life.onClose(caller.Close)
	return func(d *kind.Definition) kind.Conversion {
		if w := conversion.New(caller, d.CustomResourceDefinition); w != nil {
			return w
		}
		return nil
	}, nil
}

// servable returns a predicate of the resources whose definitions are served. As in Kubernetes, all
// paths of a group with built-in kinds belong to the built-in kinds.
func (p *parts) servable() func(group, resource string) bool {
	definable := p.definable()
	return func(group, resource string) bool {
		return !p.kinds.Current().BuiltIn(group) && definable(group, resource)
	}
}

// newDefinitionInformer creates the informer that serves the defined resources.
func (p *parts) newDefinitionInformer(b apiset.Builder) (*crdinformer.Follower, error) {
	k := p.allKinds.Current().Resource(definitions())
	convert, err := p.conversions()
	if err != nil {
		return nil, err
	}
	compiler := rules.NewCompiler()
	compiler.NoRatcheting = !p.options.Features.Enabled(features.CRDValidationRatcheting)
	compiler.Metrics = rules.NewMetrics(p.metrics)
	return crdinformer.New(crdinformer.Config{
		Definitions: k.Store, Definable: p.servable(), Maker: &kind.Maker{
			Rules: compiler, Conversion: convert, NoSelectableFields: !p.options.Features.Enabled(features.CustomResourceFieldSelectors),
		}, Builder: b,
		Decode: func(stored []byte, revision int64) (*apiextensionsv1.CustomResourceDefinition, error) {
			obj, err := k.Coder.DecodeStored(stored, revision)
			if err != nil {
				return nil, err
			}
			d, ok := obj.(*apiextensionsv1.CustomResourceDefinition)
			if !ok {
				return nil, fmt.Errorf("%T is no definition", obj)
			}
			return d, nil
		},
		Live:   []*apiset.Live{p.kinds, p.allKinds},
		Logger: p.log,
	}), nil
}

// waitForDefinitions waits until a write of a definition is processed: the controller has set its
// status, and requests see the resulting API set.
func (p *parts) waitForDefinitions(ctx context.Context, revision int64) {
	p.definitionController.Settled(ctx, revision)
	p.definitionInformer.Settled(ctx, revision)
}
