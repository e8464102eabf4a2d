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

// The fan-out is what the watch cache is fed from.
var _ watchcache.Source = (*fanout.Fanout)(nil)

// parts is the assembled server.
type parts struct {
	options *Options
	log     *slog.Logger
	metrics *prometheus.Registry
	// calls are those of services that the server asks.
	calls *webhookclient.Metrics
	// answers are those of admission webhooks.
	answers *webhookclient.Answers
	// egress leads to other networks; nil goes straight there.
	egress *egress.Selector
	health *health.Registry

	etcd  *embedded.Server // nil with external etcd and with the memory store
	store objectStore
	// values is the store above encryption, sealing the configuration of that.
	values      storage.Interface
	sealing     *encryption.Live
	traces      *tracing.Provider // nil when none are made
	resourcesOf *encryption.Resources
	older       *olderversions.Converter
	compact     func(context.Context) error
	monitor     func(context.Context) error // logs failures of an external etcd; nil without one
	elector     fanout.Elector              // nil with the memory store
	// others are clusters beside the main one, keepers those of them by what they keep.
	others  []*cluster
	keepers map[schema.GroupResource]*cluster
	fanout  *fanout.Fanout
	memory  *memory.Budget
	cache   *watchcache.Cache
	// catalog has all built-in kinds, served the ones that clients may use. What
	// the server itself keeps in a kind that is not served it still keeps.
	catalog *registry.Catalog
	served  *registry.Catalog
	// kinds are the served ones as requests see them, all those of the catalog.
	kinds, all *apiset.Live
	fields     *apply.Fields
	// written is how far this server wrote the kinds that writes are judged by.
	written map[schema.GroupResource]*lister.Written
	// acknowledged is how far this server wrote at all.
	acknowledged *lister.Written
	// compiler of expressions, made when it is first needed.
	compiler  func() (*expressions.Compiler, error)
	loopback  *internalclient.Client
	codec     *codec.Codec
	authn     authentication
	authz     authorization
	audit     auditing
	allocator *allocator.Allocator
	writes    *writes.Writer
	api       *handlers.API
	keeper    *definition.Keeper
	follower  *crdinformer.Follower
	described *described
	// registered are the group versions of custom resources.
	registered *registrations
	// authenticationDue is told that extension servers may need to know something else.
	authenticationDue chan struct{}
	remotes           *aggregation.Aggregator
	proxyPair         *tlsfiles.Pair // nil without
	// presence tells peers where this replica is, peers has them asked for what it does not
	// serve; nil when they are off.
	presence  *peers.Presence
	peers     *peers.Peers
	peerTrust *tlsfiles.Bundle
	bootstrap *bootstrap.Bootstrap
	// held tells of resources whose writes have to wait; nil when none has.
	held func(context.Context, schema.GroupResource, bool) (error, bool)
	// storing says in which versions this replica stores what; nil when nobody wants to know.
	storing *storageversions.Manager
	// leaders chooses who leads; nil when it is off.
	leaders    *leaderelection.Keeper
	flow       *flowcontrol.Controller // nil when it is off
	flowConfig *flowConfig
	server     *serving.Server
	handler    http.Handler
	// typeChecks are made before the follower, which tells them of definitions.
	typeChecks *typeChecks
	close      []func()
}

// build makes the parts in the order in which they need each other. What was
// made is released by release, also after an error.
func build(ctx context.Context, o *Options, log *slog.Logger) (*parts, error) {
	p := &parts{options: o, log: log, metrics: metrics.New(), described: newDescribed(), registered: newRegistrations(), written: newWritten(), authenticationDue: make(chan struct{}, 1), acknowledged: &lister.Written{}, compiler: sync.OnceValues(expressions.New)}
	o.Features.Warn(log)
	o.Compatibility.warn(log)
	if err := o.Features.Register(p.metrics); err != nil {
		return nil, err
	}
	p.answers = webhookclient.NewAnswers()
	p.calls = webhookclient.NewMetrics(p.metrics)
	p.health = health.New(health.Config{LivezGracePeriod: o.Serving.LivezGracePeriod, Logger: log})
	for _, step := range []func(context.Context) error{p.buildEgress, p.buildAudit, p.buildKinds, p.buildServer, p.buildTracing, p.buildStore, p.buildOthers, p.buildEncryption, p.buildCache, p.buildAuthentication, p.buildAuthorization, p.buildAPI, p.buildHandler} {
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

// buildServer binds the port before anything is opened: a port that is taken is
// found out at once.
func (p *parts) buildServer(context.Context) error {
	clients, err := p.options.clientCertificates()
	if err != nil {
		return err
	}
	p.server, err = serving.NewServer(serving.Config{
		Options: p.options.Serving, Logger: p.log, Health: p.health, LongRunning: func(r *http.Request) bool { return server.LongRunning(p.kinds, p.foreign())(r) },
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
	host, _ := p.options.hostname()
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
		Memory: p.memory, HistoryBytes: int64(p.options.Memory.History), Source: p.feed(), LoadsHistory: true, Newest: p.store, Older: p.values, Root: p.root() + "/", Resources: p.keptIn(nil, all), Logger: p.log, Registerer: p.metrics,
	}); err != nil {
		return err
	}
	if err := p.buildOtherCaches(id, all); err != nil {
		return err
	}
	return p.serveKinds()
}

// feed is what the cache is fed by.
func (p *parts) feed() watchcache.Source {
	opened := encryption.NewSource(p.fanout, p.sealing, p.resourcesOf, p.older)
	if p.options.between != nil {
		return p.options.between(opened)
	}
	return opened
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
	host, err := p.options.hostname()
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
		Written:    p.noted,
		// The keeper writes too, and is made after this.
		Settled: map[schema.GroupResource]func(context.Context, int64){
			definitions().GroupResource(): p.settled, flowResource("flowschemas"): p.flowSettled, flowResource("prioritylevelconfigurations"): p.flowSettled,
			rbacResource("roles"): p.policySettled, rbacResource("clusterroles"): p.policySettled,
			rbacResource("rolebindings"): p.policySettled, rbacResource("clusterrolebindings"): p.policySettled,
		},
		NoGarbageCollector: !p.options.GarbageCollector,
		Now:                time.Now, Logger: p.log, Metrics: writes.NewMetrics(p.metrics),
	})
	p.api = handlers.New(handlers.Config{
		Kinds: p.all, Answers: responsewriters.Answers{Responder: p.responder(), Compress: zip, Turns: p.server.LongAnswers(), Slow: server.SuspendingLimiter{LargeRequests: p.server.LargeRequests()}, Conversions: responsewriters.NewConversions(), Now: time.Now}, Store: p.values, Root: p.root(), Writes: p.writes,
		Operations: p.operations(up), Components: p.components(), DeleteCollectionWorkers: p.options.DeleteCollectionWorkers,
		MinRequestTimeout: time.Duration(p.options.MinRequestTimeout) * time.Second, BookmarkInterval: time.Minute,
		Damage:    p.damage(),
		WatchList: p.options.Features.Enabled(features.WatchList), LimitCached: !p.options.Compatibility.WatchCache, Stopping: stopping, Carried: p.carried(), Logger: p.log, Metrics: p.watchMetrics(),
	})
	p.keeper = p.newKeeper()
	p.leaders = p.newLeaders(host)
	if p.remotes, err = p.newRemotes(); err != nil {
		return err
	}
	if err := p.buildPeers(host); err != nil {
		return err
	}
	return p.buildBootstrap(host)
}

// declared says what the gates let declared rules do.
func (p *parts) declared() writes.Declared {
	on := p.options.Features.Enabled
	return writes.Declared{Enabled: on(features.DeclarativeValidation), Takeover: on(features.DeclarativeValidationTakeover)}
}

// responder speaks the media types that the gates leave on.
func (p *parts) responder() responsewriters.Responder {
	return responsewriters.Responder{Codec: p.codec, Media: negotiation.Media{CBOR: p.options.Features.Enabled(features.CBORServingAndStorage)}}
}

func (p *parts) buildBootstrap(host string) error {
	endpointsKind := p.codec.Of(p.catalog.Resource(corev1.SchemeGroupVersion.WithResource("endpoints")))
	o := p.options
	p.bootstrap = bootstrap.New(bootstrap.Config{
		API: p.loopback, Store: p.store, Root: p.root(), Logger: p.log, Now: time.Now,
		EncodeEndpoints: func(e *corev1.Endpoints) ([]byte, error) { return endpointsKind.EncodeStored(e) },
		Identity:        bootstrap.Identity(host), Instance: uuid.NewString(), Hostname: host,
		AdvertiseAddress: o.AdvertiseAddress, SecurePort: p.boundPort(), ServiceRanges: o.serviceRanges, NoIdentity: !o.Features.Enabled(features.APIServerIdentity), NoServiceCIDR: !o.Features.Enabled(features.MultiCIDRServiceAllocator), NodePort: o.KubernetesNodePort, ForeignEndpoints: o.EndpointReconciler == reconcileNone,
		AuthenticationConfig: p.authenticationConfig, AuthenticationConfigDue: p.authenticationDue, APIServices: apiServices(p.served), Loaded: p.cache.WaitReady, FeatureEnabled: o.Features.Enabled, PolicySeen: p.policySeen,
		RepairAllocations: p.allocator.Repair, RepairInterval: allocator.RepairInterval, StorageVersions: p.sayStorageVersions(bootstrap.Identity(host)),
	})
	return nil
}

func (p *parts) buildHandler(context.Context) error {
	responder := p.responder()
	docs, err := discovery.New(p.served, responder.Object, discovery.WithServerAddress(p.address()), discovery.WithPaths(p.paths), discovery.WithVersionPriority(builtin.VersionPriority), discovery.WithVersion(version.Emulating(p.options.Compatibility.emulation().Minor)))
	if err != nil {
		return err
	}
	spec, err := openapi.New(p.served, builtin.Documented, openapi.Options{CBOR: responder.Media.CBOR, Release: fmt.Sprintf("%s.%d", version.Major, p.options.Compatibility.emulation().Minor), NoEnums: !p.options.Features.Enabled(features.OpenAPIEnums), Refuse: responder.Error})
	if err != nil {
		return err
	}
	if p.authn.documents != nil {
		spec.DescribeIssuer()
	}
	p.described.serve(docs, spec, p.remotes)
	p.buildFlow()
	p.checks()
	shown, err := p.options.Metrics.Gatherer(p.gathered(), p.log)
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
	users, err := p.users()
	if err != nil {
		return err
	}
	h, err := server.Handler(server.Config{
		Mux: p.described.before(mux), Responder: responder, Authenticator: users, Authorizer: p.authz.metrics.Requests(p.authz.chain),
		Metrics: server.NewMetrics(p.metrics), Kinds: p.kinds, Delegates: p.foreign(), Reloading: p.reloading, Refresh: func(ctx context.Context) *apiset.Set { return p.follower.Newest(ctx, p.kinds) }, Logger: p.log, RequestTimeout: p.options.Serving.RequestTimeout,
		Flow: p.flow, Width: width.Of, MaxInFlight: p.options.MaxInFlight, MaxMutatingInFlight: p.options.MaxMutatingInFlight,
		StrictTransportSecurity: p.options.HSTS, GoawayChance: p.options.GoawayChance, AllowedOrigins: p.options.AllowedOrigins,
		Audit: p.audit.trail, Traces: p.traces, StorageVersionPending: p.held, LargeRequests: p.server.LargeRequests(),
	})
	if err != nil {
		return err
	}
	engine, err := serving.NewEngine(p.log)
	if err != nil {
		return err
	}
	// The API's paths are data, not routes: the chain finds who answers.
	engine.NoRoute(func(c *gin.Context) {
		c.Status(http.StatusOK) // gin takes an answer to an unknown route for a 404
		h.ServeHTTP(c.Writer, c.Request)
		c.Writer.WriteHeaderNow() // gin would give a 404 without a body one of its own
	})
	p.handler = engine
	return nil
}
