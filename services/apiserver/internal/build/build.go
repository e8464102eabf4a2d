package build

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"path"
	"sync"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/libs/features"
	"binnacle/libs/serving"
	"binnacle/libs/serving/health"
	"binnacle/libs/serving/metrics"
	"binnacle/libs/serving/tlsfiles"
	"binnacle/libs/tracing"
	"binnacle/libs/version"
	"binnacle/services/apiserver/internal/api/aggregation"
	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/api/discovery"
	"binnacle/services/apiserver/internal/api/kinds/builtin"
	"binnacle/services/apiserver/internal/api/olderversions"
	"binnacle/services/apiserver/internal/api/openapi"
	"binnacle/services/apiserver/internal/cache/lister"
	"binnacle/services/apiserver/internal/cache/memory"
	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/cel/expressions"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/codec/negotiation"
	"binnacle/services/apiserver/internal/config"
	"binnacle/services/apiserver/internal/controllers/bootstrap"
	"binnacle/services/apiserver/internal/controllers/crdinformer"
	"binnacle/services/apiserver/internal/controllers/leaderelection"
	"binnacle/services/apiserver/internal/controllers/storageversions"
	"binnacle/services/apiserver/internal/crd/definition"
	"binnacle/services/apiserver/internal/proxy/egress"
	"binnacle/services/apiserver/internal/proxy/webhookclient"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/apply"
	"binnacle/services/apiserver/internal/rest/allocator"
	"binnacle/services/apiserver/internal/rest/compress"
	"binnacle/services/apiserver/internal/rest/handlers"
	"binnacle/services/apiserver/internal/rest/internalclient"
	"binnacle/services/apiserver/internal/rest/responsewriters"
	"binnacle/services/apiserver/internal/rest/writes"
	"binnacle/services/apiserver/internal/security/authn/reviews"
	"binnacle/services/apiserver/internal/security/flowcontrol"
	"binnacle/services/apiserver/internal/security/flowcontrol/width"
	"binnacle/services/apiserver/internal/server"
	"binnacle/services/apiserver/internal/server/peers"
	"binnacle/services/apiserver/internal/storage"
	"binnacle/services/apiserver/internal/storage/encryption"
	"binnacle/services/apiserver/internal/storage/etcd/embedded"
	"binnacle/services/apiserver/internal/storage/fanout"
)

var _ watchcache.Source = (*fanout.Fanout)(nil)

// parts is the assembled server.
type parts struct {
	options *config.Options
	log     *slog.Logger
	metrics *prometheus.Registry
	// webhookMetrics measures requests to webhooks and other services.
	webhookMetrics *webhookclient.Metrics
	// admissionResponses bounds the concurrent large responses of admission webhooks.
	admissionResponses *webhookclient.ResponseLimiter
	// egress selects the proxies to other networks; nil connects directly.
	egress *egress.Selector
	health *health.Registry

	etcd  *embedded.Server // nil with external etcd and with the memory store
	store objectStore
	// values is the store above encryption.
	values              storage.Interface
	encryptionConfig    *encryption.Live
	encryptionResources *encryption.Resources
	traces              *tracing.Provider // nil if tracing is off
	olderVersions       *olderversions.Converter
	compact             func(context.Context) error
	monitor             func(context.Context) error // logs failures of an external etcd; nil without one
	elector             fanout.Elector              // nil with the memory store
	// overrideClusters are the etcd clusters of --etcd-servers-overrides; resourceClusters maps
	// the resources that they store to them.
	overrideClusters []*cluster
	resourceClusters map[schema.GroupResource]*cluster
	fanout           *fanout.Fanout
	memory           *memory.Budget
	cache            *watchcache.Cache
	// catalog holds all built-in kinds, served those that clients may use. The server itself may
	// use a kind that is not served.
	catalog *registry.Catalog
	served  *registry.Catalog
	// kinds is the API set of clients, allKinds that of the server itself.
	kinds, allKinds *apiset.Live
	fields          *apply.Fields
	// kindWrites are read-your-writes barriers of the kinds that admission reads.
	kindWrites map[schema.GroupResource]*lister.Written
	// allWrites is the read-your-writes barrier of all kinds in the main etcd.
	allWrites *lister.Written
	// compiler returns the compiler of CEL expressions, created at the first call.
	compiler func() (*expressions.Compiler, error)
	// client sends requests of the server to itself.
	client               *internalclient.Client
	codec                *codec.Codec
	authn                authentication
	authz                authorization
	audit                auditing
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
	server          *serving.Server
	handler         http.Handler
	typeChecks      *typeChecks
	close           []func()
}

// build creates the parts in the order of their dependencies. After an error it releases what it
// has created; otherwise the caller calls release.
func build(ctx context.Context, o *config.Options, log *slog.Logger) (*parts, error) {
	p := &parts{options: o, log: log, metrics: metrics.New(), documents: newDocuments(), customVersions: newCustomVersions(), kindWrites: newKindWrites(), authConfigChanged: make(chan struct{}, 1), allWrites: &lister.Written{}, compiler: sync.OnceValues(expressions.New)}
	o.Features.Warn(log)
	o.Compatibility.Warn(log)
	if err := o.Features.Register(p.metrics); err != nil {
		return nil, err
	}
	p.admissionResponses = webhookclient.NewResponseLimiter()
	p.webhookMetrics = webhookclient.NewMetrics(p.metrics)
	p.health = health.New(health.Config{LivezGracePeriod: o.Serving.LivezGracePeriod, Logger: log})
	for _, step := range []func(context.Context) error{p.buildEgress, p.buildAudit, p.buildKinds, p.buildServer, p.buildTracing, p.buildStore, p.buildOverrideClusters, p.buildEncryption, p.buildCache, p.buildAuthentication, p.buildAuthorization, p.buildAPI, p.buildHandler} {
		if err := step(ctx); err != nil {
			p.release()
			return nil, err
		}
	}
	return p, nil
}

func (p *parts) release() {
	for i := len(p.close) - 1; i >= 0; i-- {
		p.close[i]()
	}
}

// buildServer binds the port first, so that a port in use fails the start at once.
func (p *parts) buildServer(context.Context) error {
	clients, err := clientCertificates(p.options)
	if err != nil {
		return err
	}
	p.server, err = serving.NewServer(serving.Config{
		Options: p.options.Serving, Logger: p.log, Health: p.health,
		Connection: reviews.WithConnection,
		Clients:    clients, Metrics: p.metrics, HandshakeErrors: server.NewHandshakeErrors(p.metrics),
	})
	if err == nil {
		p.close = append(p.close, func() { _ = p.server.Close() })
	}
	return err
}

// root returns the prefix of all keys. It begins with a slash and does not end
// with one.
func (p *parts) root() string { return path.Join("/", p.options.Etcd.Prefix) }

func (p *parts) buildCache(context.Context) (err error) {
	host, _ := p.options.Hostname()
	id, all := fmt.Sprintf("%s:%d", host, p.boundPort()), p.resources()
	p.fanout, err = fanout.New(fanout.Config{
		Options: p.options.Fanout, Store: p.store, Elector: p.elector, Root: p.root() + "/", Since: historyOf(p.store, p.log),
		ID: id, Logger: p.log, Registerer: p.metrics,
	})
	if err != nil {
		return err
	}
	p.fanout.Traced(p.traces)
	p.memory = memory.New(memory.Limit(int64(p.options.Memory.Caches)), p.metrics)
	if p.cache, err = watchcache.New(watchcache.Config{
		Memory: p.memory, HistoryBytes: int64(p.options.Memory.History), Source: p.cacheSource(), LoadsHistory: true, Newest: p.store, Older: p.values, Root: p.root() + "/", Resources: p.resourcesIn(nil, all), Logger: p.log, Registerer: p.metrics,
	}); err != nil {
		return err
	}
	if err := p.buildOverrideCaches(id, all); err != nil {
		return err
	}
	return p.serveKinds()
}

// cacheSource returns the decrypted change stream that feeds the cache.
func (p *parts) cacheSource() watchcache.Source {
	source := encryption.NewSource(p.fanout, p.encryptionConfig, p.encryptionResources, p.olderVersions)
	if p.options.WrapSource != nil {
		return p.options.WrapSource(source)
	}
	return source
}

func (p *parts) buildAPI(context.Context) error {
	stopping, cancel := context.WithCancel(context.Background())
	p.close = append(p.close, cancel)
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
		Codec: p.codec, Fields: p.fields, Store: p.values, Admission: chain, Authorizer: p.authz.chain, Declared: p.declared(), Damage: p.damage(), EventTTL: p.options.EventTTL,
		Allocators: map[schema.GroupResource]writes.Allocator{{Resource: "services"}: serviceAllocator{p.allocator}},
		Written:    p.recordWrite,
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
		Kinds: p.allKinds, Answers: responsewriters.Answers{Responder: p.responder(), Compress: zip, Limiter: p.server.LongAnswers(), Slow: server.SuspendingLimiter{LargeRequests: p.server.LargeRequests()}, Conversions: responsewriters.NewConversions(), Now: time.Now}, Store: p.values, Root: p.root(), Writes: p.writes,
		Operations: p.operations(up), Components: p.components(), DeleteCollectionWorkers: p.options.DeleteCollectionWorkers,
		MinRequestTimeout: time.Duration(p.options.MinRequestTimeout) * time.Second, BookmarkInterval: time.Minute,
		Damage:    p.damage(),
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
		API: p.client, Store: p.store, Root: p.root(), Logger: p.log, Now: time.Now,
		EncodeEndpoints: func(e *corev1.Endpoints) ([]byte, error) { return endpointsKind.EncodeStored(e) },
		Identity:        bootstrap.Identity(host), Instance: uuid.NewString(), Hostname: host,
		AdvertiseAddress: o.AdvertiseAddress, SecurePort: p.boundPort(), ServiceRanges: o.ServiceRanges, NoIdentity: !o.Features.Enabled(features.APIServerIdentity), NoServiceCIDR: !o.Features.Enabled(features.MultiCIDRServiceAllocator), NodePort: o.KubernetesNodePort, ForeignEndpoints: o.EndpointReconciler == config.ReconcileNone,
		AuthenticationConfig: p.authenticationConfig, AuthenticationConfigDue: p.authConfigChanged, APIServices: apiServices(p.served), Loaded: p.cache.WaitReady, FeatureEnabled: o.Features.Enabled, PolicySeen: p.policySynced,
		RepairAllocations: p.allocator.Repair, RepairInterval: allocator.RepairInterval, StorageVersions: p.newStorageVersions(bootstrap.Identity(host)),
	})
	return nil
}

func (p *parts) buildHandler(context.Context) error {
	responder := p.responder()
	docs, err := discovery.New(p.served, responder.Object, discovery.WithServerAddress(p.address()), discovery.WithPaths(p.paths), discovery.WithVersionPriority(builtin.VersionPriority), discovery.WithVersion(version.Emulating(p.options.Compatibility.Emulation().Minor)))
	if err != nil {
		return err
	}
	spec, err := openapi.New(p.served, builtin.Documented, openapi.Options{CBOR: responder.Media.CBOR, Release: fmt.Sprintf("%s.%d", version.Major, p.options.Compatibility.Emulation().Minor), NoEnums: !p.options.Features.Enabled(features.OpenAPIEnums), Refuse: responder.Error})
	if err != nil {
		return err
	}
	if p.authn.documents != nil {
		spec.DescribeIssuer()
	}
	p.documents.attach(docs, spec, p.extensions)
	p.buildFlow()
	p.addHealthChecks()
	shown, err := p.options.Metrics.Gatherer(p.gatherer(), p.log)
	if err != nil {
		return err
	}
	mux := &server.Mux{
		Flow: p.flow, API: p.api, Discovery: docs, Health: p.health, Metrics: metrics.Handler(shown, p.log), SLIs: metrics.Handler(p.health.SLIs(), p.log), OpenAPI: spec, Issuer: p.authn.documents, Profiling: p.options.Profiling,
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
