package build

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/google/uuid"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/libs/features"
	"binnacle/libs/options"
	"binnacle/libs/serving"
	"binnacle/libs/serving/metrics"
	"binnacle/libs/serving/tlsfiles"
	"binnacle/libs/version"
	"binnacle/services/apiserver/internal/api/aggregation"
	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/api/discovery"
	"binnacle/services/apiserver/internal/api/kinds/builtin"
	"binnacle/services/apiserver/internal/api/kinds/certificates"
	"binnacle/services/apiserver/internal/api/openapi"
	"binnacle/services/apiserver/internal/cel/expressions"
	"binnacle/services/apiserver/internal/codec/negotiation"
	"binnacle/services/apiserver/internal/config"
	"binnacle/services/apiserver/internal/controllers/bootstrap"
	"binnacle/services/apiserver/internal/controllers/crdinformer"
	"binnacle/services/apiserver/internal/controllers/leaderelection"
	"binnacle/services/apiserver/internal/controllers/storageversions"
	"binnacle/services/apiserver/internal/crd/definition"
	"binnacle/services/apiserver/internal/proxy/webhookclient"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/apply"
	"binnacle/services/apiserver/internal/rest/allocator"
	"binnacle/services/apiserver/internal/rest/compress"
	"binnacle/services/apiserver/internal/rest/handlers"
	"binnacle/services/apiserver/internal/rest/internalclient"
	"binnacle/services/apiserver/internal/rest/patch"
	"binnacle/services/apiserver/internal/rest/responsewriters"
	"binnacle/services/apiserver/internal/rest/writes"
	"binnacle/services/apiserver/internal/security/flowcontrol"
	"binnacle/services/apiserver/internal/security/flowcontrol/width"
	"binnacle/services/apiserver/internal/server"
	"binnacle/services/apiserver/internal/server/peers"
)

// parts is the assembled server.
type parts struct {
	options *config.Options
	*base
	*listener
	*catalogs
	*stores
	*caches
	audit *auditing
	// admissionResponses bounds the concurrent large responses of admission webhooks.
	admissionResponses *webhookclient.ResponseLimiter
	// kinds is the API set of clients, allKinds that of the server itself.
	kinds, allKinds *apiset.Live
	fields          *apply.Fields
	// compiler returns the compiler of CEL expressions, created at the first call.
	compiler func() (*expressions.Compiler, error)
	// client sends requests of the server to itself.
	client               *internalclient.Client
	authn                authentication
	authz                authorization
	allocator            *allocator.Allocator
	writes               *writes.Writer
	api                  *handlers.API
	definitionController *definition.Keeper
	definitionInformer   *crdinformer.Follower
	documents            *documents
	// customVersions are the group versions of custom resources.
	customVersions *customVersions
	// authConfigChanged receives when the configuration for extension servers may have changed.
	authConfigChanged chan struct{}
	extensions        *aggregation.Aggregator
	proxyClientCert   *tlsfiles.Pair // nil if not configured
	// presence publishes the address of this replica; peers proxies requests to other replicas.
	// Both are nil if they are disabled.
	presence  *peers.Presence
	peers     *peers.Peers
	peerCAs   *tlsfiles.Bundle
	bootstrap *bootstrap.Bootstrap
	// writesBlocked reports whether writes of a resource must wait for other replicas; nil if the
	// feature is disabled.
	writesBlocked func(context.Context, schema.GroupResource, bool) (error, bool)
	// storageVersions publishes the storage versions of this replica; nil if disabled.
	storageVersions *storageversions.Manager
	leaderElection  *leaderelection.Keeper  // nil if disabled
	flow            *flowcontrol.Controller // nil if disabled
	flowConfig      *flowConfig
	handler         http.Handler
	typeChecks      *typeChecks
}

// build creates the parts in the order of their dependencies. After an error it releases what it
// has created; otherwise the caller closes the lifecycle.
func build(ctx context.Context, o *config.Options, log *slog.Logger) (*parts, error) {
	o.Features.Warn(log)
	o.Compatibility.Warn(log)
	o.WarnInsecure(log)
	p := &parts{options: o, documents: newDocuments(), customVersions: newCustomVersions(), authConfigChanged: make(chan struct{}, 1), compiler: sync.OnceValues(expressions.New), admissionResponses: webhookclient.NewResponseLimiter()}
	life := &lifecycle{}
	if err := p.assemble(ctx, o, log, life); err != nil {
		life.close()
		return nil, err
	}
	return p, nil
}

func (p *parts) assemble(ctx context.Context, o *config.Options, log *slog.Logger, life *lifecycle) (err error) {
	metrics := metrics.New()
	if p.listener, err = newListener(o, log, metrics, life); err != nil {
		return err
	}
	if p.base, err = newBase(ctx, o, log, metrics, p.listener, life); err != nil {
		return err
	}
	if p.audit, err = newAuditing(p.base, &o.Audit, p.server.LongAnswers()); err != nil {
		return err
	}
	if p.catalogs, err = newCatalogs(p.base, o); err != nil {
		return err
	}
	if p.stores, err = newStores(ctx, p.base, o, p.catalogs, p.audit.auditor); err != nil {
		return err
	}
	if p.caches, err = newCaches(p.base, o, p.catalogs, p.stores); err != nil {
		return err
	}
	for _, step := range []func(context.Context) error{p.serveKinds, p.buildAuthentication, p.buildAuthorization, p.buildAPI, p.buildHandler} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (p *parts) buildAPI(context.Context) error {
	stopping, cancel := context.WithCancel(context.Background())
	p.life.onClose(cancel)
	go func() { // ends with the server
		select {
		case <-p.server.LongRunningStop():
			cancel()
		case <-stopping.Done():
		}
	}()
	zip, err := compress.New(p.memory, p.metrics)
	if err != nil {
		return err
	}
	host, err := p.options.Hostname()
	if err != nil {
		return err
	}
	p.allocator = p.newAllocator(host)
	up, err := p.kubelets()
	if err != nil {
		return err
	}
	chain, err := p.admission()
	if err != nil {
		return err
	}
	p.writes = writes.New(writes.Config{
		Codec: p.codec, Fields: p.fields, Store: p.values, Admission: chain, Authorizer: p.authz.chain, Declared: p.declared(), Damage: damage(p.base), EventTTL: p.options.EventTTL,
		Allocators: map[schema.GroupResource]writes.Allocator{{Resource: "services"}: serviceAllocator{p.allocator}},
		Written:    p.recordWrite,
		Updated: map[schema.GroupResource]func(old, obj registry.Object){
			{Group: certificatesv1.GroupName, Resource: "certificatesigningrequests"}: certificates.NewDurations(p.metrics).Observe,
		},
		// Methods of p, because these parts are created after this one.
		Settled: map[schema.GroupResource]func(context.Context, int64){
			definitions().GroupResource(): p.waitForDefinitions, flowResource("flowschemas"): p.waitForFlowConfig, flowResource("prioritylevelconfigurations"): p.waitForFlowConfig,
			rbacResource("roles"): p.waitForPolicy, rbacResource("clusterroles"): p.waitForPolicy,
			rbacResource("rolebindings"): p.waitForPolicy, rbacResource("clusterrolebindings"): p.waitForPolicy,
		},
		NoGarbageCollector: !p.options.GarbageCollector,
		Now:                time.Now, Logger: p.log, Metrics: writes.NewMetrics(p.metrics),
	})
	p.api = handlers.New(handlers.Config{
		Kinds: p.allKinds, Answers: responsewriters.Answers{Responder: p.responder(), Compress: zip, Limiter: p.server.LongAnswers(), Slow: server.SuspendingLimiter{LargeRequests: p.server.LargeRequests()}, Conversions: responsewriters.NewConversions(), Now: time.Now}, Store: p.values, Root: p.base.root, Writes: p.writes,
		Operations: p.operations(up), Components: p.components(), DeleteCollectionWorkers: p.options.DeleteCollectionWorkers,
		MinRequestTimeout: time.Duration(p.options.MinRequestTimeout) * time.Second, BookmarkInterval: time.Minute,
		Damage:    damage(p.base),
		WatchList: p.options.Features.Enabled(features.WatchList), LimitCached: !p.options.Compatibility.WatchCache, Stopping: stopping, Carried: p.proxyLimit(), Logger: p.log, Metrics: p.watchMetrics(),
	})
	p.definitionController = p.newDefinitionController()
	p.leaderElection = p.newLeaderElection(host)
	if p.extensions, err = p.newExtensions(); err != nil {
		return err
	}
	p.extensions.OnChange(p.documents.extensionsChanged)
	if err := p.buildPeers(host); err != nil {
		return err
	}
	return p.buildBootstrap(host)
}

// declared returns the gates of declarative validation.
func (p *parts) declared() writes.Declared {
	on := p.options.Features.Enabled
	return writes.Declared{Enabled: on(features.DeclarativeValidation), Takeover: on(features.DeclarativeValidationTakeover)}
}

// responder returns a response writer for the enabled media types.
func (p *parts) responder() responsewriters.Responder {
	return responsewriters.Responder{Codec: p.codec, Media: negotiation.Media{CBOR: p.options.Features.Enabled(features.CBORServingAndStorage)}}
}

func (p *parts) buildBootstrap(host string) error {
	endpointsKind := p.codec.Of(p.catalog.Resource(corev1.SchemeGroupVersion.WithResource("endpoints")))
	o := p.options
	p.bootstrap = bootstrap.New(bootstrap.Config{
		API: p.client, Store: p.store, Root: p.base.root, Logger: p.log, Now: time.Now,
		EncodeEndpoints: func(e *corev1.Endpoints) ([]byte, error) { return endpointsKind.EncodeStored(e) },
		Identity:        bootstrap.Identity(host), Instance: uuid.NewString(), Hostname: host,
		AdvertiseAddress: o.AdvertiseAddress, SecurePort: p.base.port, ServiceRanges: o.ServiceRanges, NoIdentity: !o.Features.Enabled(features.APIServerIdentity), NoServiceCIDR: !o.Features.Enabled(features.MultiCIDRServiceAllocator), NodePort: o.KubernetesNodePort, ForeignEndpoints: o.EndpointReconciler == config.ReconcileNone,
		AuthenticationConfig: p.authenticationConfig, AuthenticationConfigDue: p.authConfigChanged, APIServices: apiServices(p.served), Loaded: p.cache.WaitReady, FeatureEnabled: o.Features.Enabled, PolicySeen: p.policySynced,
		RepairAllocations: p.allocator.Repair, RepairInterval: allocator.RepairInterval, StorageVersions: p.newStorageVersions(bootstrap.Identity(host)),
	})
	return nil
}

func (p *parts) buildHandler(context.Context) error {
	responder := p.responder()
	docs, err := discovery.New(p.served, responder.Object, discovery.WithServerAddress(p.base.address), discovery.WithPaths(p.paths), discovery.WithVersionPriority(builtin.VersionPriority), discovery.WithVersion(version.Emulating(p.options.Compatibility.Emulation().Minor)))
	if err != nil {
		return err
	}
	spec, err := openapi.New(p.served, builtin.Documented, openapi.Options{CBOR: responder.Media.CBOR, Patches: patch.MediaTypes(true, responder.Media.CBOR), CustomPatches: patch.MediaTypes(false, false), Release: fmt.Sprintf("%s.%d", version.Major, p.options.Compatibility.Emulation().Minor), NoEnums: !p.options.Features.Enabled(features.OpenAPIEnums), Refuse: responder.Error})
	if err != nil {
		return err
	}
	if p.authn.documents != nil {
		spec.DescribeIssuer()
	}
	p.documents.attach(docs, spec, p.extensions)
	p.buildFlow()
	p.addHealthChecks()
	shown, err := p.options.Metrics.Gatherer(p.stores.overrideClusters.gatherer(p.metrics), p.log)
	if err != nil {
		return err
	}
	mux := &server.Mux{
		Flow: p.flow, API: p.api, Discovery: docs, Health: p.health, Metrics: metrics.Handler(shown, p.log), SLIs: metrics.Handler(p.health.SLIs(), p.log), OpenAPI: spec, Issuer: p.authn.documents, Profiling: p.options.Profiling,
		Verbosity: func(n int) { options.SetVerbosity(p.log, n) },
	}
	p.zpages(mux)
	if p.options.LogFiles {
		mux.LogFiles = "/var/log"
	}
	users, err := p.authenticator()
	if err != nil {
		return err
	}
	h, err := server.Handler(server.Config{
		Mux: p.documents.withRefresh(mux), Responder: responder, Authenticator: users, Authorizer: p.authz.metrics.Requests(p.authz.chain),
		Metrics: server.NewMetrics(p.metrics), Kinds: p.kinds, Delegates: p.foreign(), Reloading: p.reloading, Refresh: func(ctx context.Context) *apiset.Set { return p.definitionInformer.Newest(ctx, p.kinds) }, Logger: p.log, RequestTimeout: p.options.Serving.RequestTimeout,
		Flow: p.flow, Width: width.Of, MaxInFlight: p.options.MaxInFlight, MaxMutatingInFlight: p.options.MaxMutatingInFlight,
		StrictTransportSecurity: p.options.HSTS, GoawayChance: p.options.GoawayChance, AllowedOrigins: p.options.AllowedOrigins,
		Audit: p.audit.auditor, Traces: p.traces, StorageVersionPending: p.writesBlocked, LargeRequests: p.server.LargeRequests(),
	})
	if err != nil {
		return err
	}
	engine, err := serving.NewEngine(p.log)
	if err != nil {
		return err
	}
	// The paths of the API are data, not routes: the handler chain resolves them.
	engine.NoRoute(func(c *gin.Context) {
		c.Status(http.StatusOK) // gin presets 404 for unknown routes
		h.ServeHTTP(c.Writer, c.Request)
		c.Writer.WriteHeaderNow() // gin would add its own body to a 404 without one
	})
	p.handler = engine
	return nil
}
