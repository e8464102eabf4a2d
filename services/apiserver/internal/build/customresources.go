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

// definable tells of the resources that definitions may define: none that is built in,
// in whatever version, and none that would stand where built-in ones do.
func (p *parts) definable() func(group, resource string) bool {
	builtIn := map[schema.GroupResource]bool{}
	for _, k := range p.catalog.Kinds() {
		builtIn[k.GVR().GroupResource()] = true
	}
	return func(group, resource string) bool {
		return definition.HasOwnPlace(group, resource) && !builtIn[schema.GroupResource{Group: group, Resource: resource}]
	}
}

// newKeeper keeps the statuses of the definitions of custom resources, and
// cleans up after those that are deleted.
func (p *parts) newKeeper() *definition.Keeper {
	return definition.NewKeeper(definition.Config{
		Definitions: p.all.Current().Resource(definitions()).Store,
		Client:      definitionStatuses{p.loopback},
		Instances:   &definition.Stored{Store: p.values, Root: p.root(), Now: time.Now},
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

// conversions asks the webhooks of definitions.
func (p *parts) conversions() (func(*kind.Definition) kind.Conversion, error) {
	asker, err := conversion.NewAsker(p.services(), p.ways(), webhookclient.NewAnswers(), p.calls)
	if err != nil {
		return nil, err
	}
	p.close = append(p.close, asker.Close)
	return func(d *kind.Definition) kind.Conversion {
		if w := conversion.New(asker, d.CustomResourceDefinition); w != nil {
			return w
		}
		return nil
	}, nil
}

// servable returns whether definitions of a resource are served. As in Kubernetes, all paths of a group
// with built-in kinds are those of the built-in kinds.
func (p *parts) servable() func(group, resource string) bool {
	definable := p.definable()
	return func(group, resource string) bool {
		return !p.kinds.Current().BuiltIn(group) && definable(group, resource)
	}
}

// newFollower serves what is defined.
func (p *parts) newFollower(b apiset.Builder) (*crdinformer.Follower, error) {
	k := p.all.Current().Resource(definitions())
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
		Live:     []*apiset.Live{p.kinds, p.all},
		Swapping: p.storeAsDefined,
		Swapped: func(s crdinformer.Swap) {
			p.described.set(s.Changed)
			p.registered.set(s.Changed, s.Complete)
			p.typeChecks.set(s)
		},
		Logger: p.log,
	}), nil
}

// settled waits until what was written of definitions is acted on: the keeper
// has given it a status, and requests see what that means.
func (p *parts) settled(ctx context.Context, revision int64) {
	p.keeper.Settled(ctx, revision)
	p.follower.Settled(ctx, revision)
}
