package build

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/libs/features"
	"binnacle/libs/version"
	"binnacle/services/apiserver/internal/api/aggregation"
	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/api/customdocs"
	"binnacle/services/apiserver/internal/api/discovery"
	"binnacle/services/apiserver/internal/api/kinds/builtin"
	"binnacle/services/apiserver/internal/api/openapi"
	"binnacle/services/apiserver/internal/cache/informer"
	"binnacle/services/apiserver/internal/cache/lister"
	"binnacle/services/apiserver/internal/cache/objects"
	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/codec/negotiation"
	"binnacle/services/apiserver/internal/config"
	"binnacle/services/apiserver/internal/controllers/autoregister"
	"binnacle/services/apiserver/internal/controllers/crdinformer"
	"binnacle/services/apiserver/internal/controllers/statuses"
	"binnacle/services/apiserver/internal/crd/conversion"
	"binnacle/services/apiserver/internal/crd/definition"
	"binnacle/services/apiserver/internal/crd/kind"
	"binnacle/services/apiserver/internal/crd/rules"
	"binnacle/services/apiserver/internal/proxy/webhookclient"
	"binnacle/services/apiserver/internal/registry"
	apiextensionsv1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
	"binnacle/services/apiserver/internal/registry/apply"
	"binnacle/services/apiserver/internal/rest/internalclient"
	"binnacle/services/apiserver/internal/rest/patch"
	"binnacle/services/apiserver/internal/rest/responsewriters"
	"binnacle/services/apiserver/internal/rest/writes"
	"binnacle/services/apiserver/internal/security/audit"
	"binnacle/services/apiserver/internal/storage/etcd"
)

// apiSets holds the API sets that requests see, and the internal client.
type apiSets struct {
	// kinds is the API set of clients. allKinds is the API set of the server itself, which also has
	// the built-in kinds that clients may not use.
	kinds, allKinds *apiset.Live
	// builder creates API sets from built-in kinds and definitions.
	builder apiset.Builder
	// fields implements the field ownership of server-side apply.
	fields *apply.Fields
	// respond writes responses in the enabled media types.
	respond responsewriters.Responder
	// client sends requests of the server to itself without a network connection.
	client *internalclient.Client
}

// newAPISets creates the API sets of the built-in kinds and the internal client. writer returns the
// writer that the internal client uses. The client must not call it before the writer exists: the
// writer is created later, because it needs admission, and admission needs the client.
func newAPISets(base *base, caches *caches, stores *stores, auditor *audit.Auditor, writer func() *writes.Writer) *apiSets {
	result := &apiSets{
		fields: apply.New(caches.catalog, time.Now),
		respond: responsewriters.Responder{
			Codec: caches.codec,
			Media: negotiation.Media{CBOR: base.gates.Enabled(features.CBORServingAndStorage)},
		},
	}
	result.builder = apiset.Builder{
		Codec:     caches.codec,
		Cache:     caches.cache,
		Elsewhere: caches.overrideClusters.caches(),
		Root:      base.root,
		Fields:    result.fields,
	}
	all := result.builder.Set(caches.catalog, 0)
	result.allKinds = apiset.NewLive(all)
	result.kinds = apiset.NewLive(all.Filter(caches.served))
	result.client = &internalclient.Client{Doer: &internalclient.Server{
		Kinds:   result.allKinds,
		Cache:   caches.cache,
		Codec:   caches.codec,
		Writer:  writer,
		Logger:  base.log,
		Audit:   auditor,
		Metrics: internalclient.NewMetrics(base.metrics),
		Traces:  base.traces,
	}}
	if main, ok := stores.store.(*etcd.Store); ok {
		// The metrics of a custom resource exist only while the resource is served.
		main.KeepSeriesWhile(func() func(schema.GroupResource) bool { return result.allKinds.Current().ServesResource })
	}
	return result
}

// storedKind returns the declaration of a kind, or nil if the kind is not served or not stored.
func (a *apiSets) storedKind(gvk schema.GroupVersionKind) *registry.Kind {
	if r := a.kinds.Current().StoredKind(gvk); r != nil {
		return r.Kind
	}
	return nil
}

// family returns all versions in which the resource of a kind is served.
func (a *apiSets) family(k *registry.Kind) []*apiset.Resource { return a.kinds.Current().Family(k) }

// definitionsResource returns the resource customresourcedefinitions.
func definitionsResource() schema.GroupVersionResource {
	return apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions")
}

// customResources holds the parts that serve custom resources.
type customResources struct {
	// informer adds the resources of definitions to the API sets.
	informer *crdinformer.Syncer
	// controller maintains the statuses of definitions. When a definition is deleted, it deletes
	// the objects of the custom resource.
	controller *definition.Controller
}

// newCustomResources creates the parts that serve custom resources, and adds their tasks.
func newCustomResources(base *base, caches *caches, stores *stores, sets *apiSets, network *network) (*customResources, error) {
	informer, err := newDefinitionInformer(base, caches, sets, network)
	if err != nil {
		return nil, err
	}
	controller := definition.NewController(definition.Config{
		Definitions: sets.allKinds.Current().Resource(definitionsResource()).Store,
		Client:      statuses.Definitions{Client: sets.client},
		Instances:   &definition.StoredInstances{Store: stores.values, Root: base.root, Now: time.Now},
		Definable:   caches.definable(),
		Logger:      base.log,
		Now:         time.Now,
	})
	base.lifetime.inBackground("custom resources", informer.Run)
	base.lifetime.whileServing("definitions", controller.Run)
	return &customResources{informer: informer, controller: controller}, nil
}

// waitForRevision waits until the write of a definition at a revision has taken effect: the
// controller has written its status, and requests see the resulting API set.
func (c *customResources) waitForRevision(ctx context.Context, revision int64) {
	c.controller.WaitForRevision(ctx, revision)
	c.informer.WaitForRevision(ctx, revision)
}

// newDefinitionInformer creates the informer that adds the resources of definitions to the API
// sets.
func newDefinitionInformer(base *base, caches *caches, sets *apiSets, network *network) (*crdinformer.Syncer, error) {
	resource := sets.allKinds.Current().Resource(definitionsResource())
	limiter := webhookclient.NewResponseLimiter(base.limits.MaxLargeWebhookResponses)
	caller, err := conversion.NewCaller(network.services, network.dialers, limiter, base.webhookMetrics)
	if err != nil {
		return nil, err
	}
	base.lifetime.onClose(caller.Close)
	compiler := rules.NewCompiler()
	compiler.NoRatcheting = !base.gates.Enabled(features.CRDValidationRatcheting)
	compiler.Metrics = rules.NewMetrics(base.metrics)
	definable := caches.definable()
	return crdinformer.New(crdinformer.Config{
		Definitions: resource.Store,
		// As in Kubernetes, all paths of a group with built-in kinds belong to the built-in kinds.
		Definable: func(group, resource string) bool {
			return !sets.kinds.Current().BuiltIn(group) && definable(group, resource)
		},
		Maker: &kind.Maker{
			Rules:              compiler,
			NoSelectableFields: !base.gates.Enabled(features.CustomResourceFieldSelectors),
			Conversion: func(d *kind.CRD) kind.Conversion {
				if w := conversion.New(caller, d.CustomResourceDefinition); w != nil {
					return w
				}
				return nil // and not w, a non-nil interface with a nil pointer
			},
		},
		Builder: sets.builder,
		Decode:  lister.Decoder[*apiextensionsv1.CustomResourceDefinition](resource.Coder),
		Live:    []*apiset.Live{sets.kinds, sets.allKinds},
		Logger:  base.log,
	}), nil
}

// documents holds the documents that describe the API.
type documents struct {
	discovery *discovery.Documents
	openapi   *openapi.Service
	custom    *customdocs.Updater
}

// newDocuments creates the documents that describe the API. They follow changes of definitions and of
// the extension servers (remotes). issuer means that the token issuer's documents are served. paths
// returns the paths that are served in addition to the API.
func newDocuments(
	base *base,
	options *config.Options,
	catalogs *catalogs,
	respond responsewriters.Responder,
	issuer bool,
	paths func() []string,
	remotes *aggregation.Aggregator,
	informer *crdinformer.Syncer,
) (*documents, error) {
	minor := options.Compatibility.Emulation().Minor
	docs, err := discovery.New(catalogs.served, respond.Error, discovery.WithServerAddress(base.address),
		discovery.WithPaths(paths), discovery.WithVersionPriority(builtin.VersionPriority),
		discovery.WithVersion(version.Emulating(minor)))
	if err != nil {
		return nil, err
	}
	swagger, err := openapi.New(catalogs.served, builtin.Documented, openapi.Options{
		CBOR:          respond.Media.CBOR,
		Patches:       patch.MediaTypes(true, respond.Media.CBOR),
		CustomPatches: patch.MediaTypes(false, false),
		Release:       fmt.Sprintf("%s.%d", version.Major, minor),
		NoEnums:       !base.gates.Enabled(features.OpenAPIEnums),
		Reject:        respond.Error,
	})
	if err != nil {
		return nil, err
	}
	if issuer {
		swagger.DescribeIssuer()
	}
	d := &documents{discovery: docs, openapi: swagger, custom: customdocs.New(docs, swagger, remotes)}
	informer.OnSwapped(func(update kind.CRDUpdate) { d.custom.Set(update.Changed) })
	return d, nil
}

// followAPIServices adds a task that reacts to changes of APIServices. It makes docs update the
// documents, makes registrations compare the APIServices with the served custom resources, and
// checks the availability of the extension servers in remotes.
func followAPIServices(
	base *base,
	caches *caches,
	remotes *aggregation.Aggregator,
	docs *customdocs.Updater,
	registrations *autoregister.CustomVersions,
) {
	store := caches.lookup(apiServiceResource()).Store
	base.lifetime.whileServing("apiservices of extension servers", func(ctx context.Context) error {
		return informer.Follow(ctx, store, objects.Selection{}, func([]watchcache.Event) {
			docs.ExtensionsChanged()
			registrations.Notify()
			remotes.TriggerChecks()
		})
	})
}
