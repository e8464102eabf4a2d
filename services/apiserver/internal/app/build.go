package app

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/libs/serving"
	"binnacle/libs/serving/health"
	"binnacle/libs/serving/metrics"
	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/admission/namespacelifecycle"
	"binnacle/services/apiserver/internal/admission/noderestriction"
	"binnacle/services/apiserver/internal/admission/nodetaint"
	"binnacle/services/apiserver/internal/allocator"
	"binnacle/services/apiserver/internal/authn/reviews"
	"binnacle/services/apiserver/internal/bootstrap"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/compress"
	"binnacle/services/apiserver/internal/discovery"
	"binnacle/services/apiserver/internal/endpoints"
	"binnacle/services/apiserver/internal/fanout"
	"binnacle/services/apiserver/internal/features"
	"binnacle/services/apiserver/internal/negotiate"
	"binnacle/services/apiserver/internal/openapi"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/builtin"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/server"
	"binnacle/services/apiserver/internal/storage/etcd"
	"binnacle/services/apiserver/internal/storage/etcd/embedded"
	"binnacle/services/apiserver/internal/upstream"
	"binnacle/services/apiserver/internal/watchcache"
)

// The fan-out is what the watch cache is fed from.
var _ watchcache.Source = (*fanout.Fanout)(nil)

// parts is the assembled server.
type parts struct {
	options *Options
	log     *slog.Logger
	metrics *prometheus.Registry
	health  *health.Registry

	etcd      *embedded.Server // nil with external etcd
	store     *etcd.Store
	compactor *etcd.Compactor
	fanout    *fanout.Fanout
	cache     *watchcache.Cache
	// catalog has all built-in kinds, served the ones that clients may use. What
	// the server itself keeps in a kind that is not served it still keeps.
	catalog   *registry.Catalog
	served    *registry.Catalog
	codec     *codec.Codec
	authn     authentication
	authz     authorization
	allocator *allocator.Allocator
	api       *endpoints.API
	bootstrap *bootstrap.Bootstrap
	server    *serving.Server
	handler   http.Handler
	// checkNames are the health checks of all endpoints.
	checkNames []string
	close      []func()
}

// build makes the parts in the order in which they need each other. What was
// made is released by release, also after an error.
func build(ctx context.Context, o *Options, log *slog.Logger) (*parts, error) {
	p := &parts{options: o, log: log, metrics: metrics.New()}
	o.Features.Warn(log)
	if err := o.Features.Register(p.metrics); err != nil {
		return nil, err
	}
	p.health = health.New(health.Config{LivezGracePeriod: o.Serving.LivezGracePeriod, Logger: log})
	for _, step := range []func(context.Context) error{p.buildServer, p.buildKinds, p.buildStore, p.buildCache, p.buildAuthentication, p.buildAuthorization, p.buildAPI, p.buildHandler} {
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

// buildServer binds the port first: a port that is taken is found out at once.
func (p *parts) buildServer(context.Context) error {
	clients, err := p.options.clientCertificates()
	if err != nil {
		return err
	}
	p.server, err = serving.NewServer(serving.Config{
		Options: p.options.Serving, Logger: p.log, Health: p.health, LongRunning: server.IsLongRunning,
		Connection: reviews.WithConnection,
		Clients:    clients, Metrics: p.metrics,
	})
	if err == nil {
		p.close = append(p.close, func() { _ = p.server.Close() })
	}
	return err
}

func (p *parts) buildKinds(context.Context) (err error) {
	if p.catalog, err = builtin.Everything(registry.Settings{AllowPrivileged: p.options.AllowPrivileged, Gates: p.options.Features}); err != nil {
		return err
	}
	if p.served, err = p.catalog.Only(p.options.RuntimeConfig.Serves); err != nil {
		return err
	}
	p.codec, err = codec.New(p.catalog, builtin.Scheme())
	return err
}

func (p *parts) buildStore(ctx context.Context) (err error) {
	o := p.options.Etcd
	cfg := etcd.Config{}
	if len(o.Servers) == 0 {
		if p.etcd, err = embedded.Start(ctx, embedded.Options{DataDir: o.DataDir, Logger: p.log}); err != nil {
			return err
		}
		p.close = append(p.close, p.etcd.Stop)
		cfg = p.etcd.Config()
	} else {
		client, err := etcd.Dial(etcd.DialOptions{Servers: o.Servers, CAFile: o.CAFile, CertFile: o.CertFile, KeyFile: o.KeyFile, Logger: p.log})
		if err != nil {
			return err
		}
		p.close = append(p.close, func() { _ = client.Close() })
		cfg.Client = client
	}
	cfg.Prefix = p.root()
	cfg.LeaseReuse = time.Duration(o.LeaseReuseSeconds) * time.Second
	cfg.Logger, cfg.Metrics = p.log, p.metrics
	if p.store, err = etcd.New(cfg); err != nil {
		return err
	}
	p.compactor = &etcd.Compactor{Store: p.store, Interval: o.CompactionInterval, Logger: p.log}
	return nil
}

// root is the prefix of all keys, without a slash at its end.
func (p *parts) root() string { return strings.TrimRight(p.options.Etcd.Prefix, "/") }

func (p *parts) buildCache(context.Context) (err error) {
	host, _ := os.Hostname()
	p.fanout, err = fanout.New(fanout.Config{
		Options: p.options.Fanout, Store: p.store, Elector: etcd.NewElector(p.store, 0), Root: p.root() + "/", Since: p.historyFrom,
		ID: fmt.Sprintf("%s:%d", host, p.boundPort()), Logger: p.log, Registerer: p.metrics,
	})
	if err != nil {
		return err
	}
	p.cache, err = watchcache.New(watchcache.Config{
		Source: p.fanout, LoadsHistory: true, Newest: p.store, Root: p.root() + "/", Resources: p.resources(), Logger: p.log, Registerer: p.metrics,
	})
	return err
}

// compressedBytes bounds what is kept of compressed lists.
const compressedBytes = 32 << 20

// resources tells the cache of every stored kind. Of kinds that share a place in
// the store, the one that is stored as it is served says what selectors see.
func (p *parts) resources() []watchcache.Resource {
	var out []watchcache.Resource
	seen := map[string]bool{}
	for _, k := range p.catalog.Kinds() {
		if k.Virtual || seen[k.Stored.Prefix] || k.Stored.To != nil && p.sharesStore(k) {
			continue
		}
		seen[k.Stored.Prefix] = true
		coder := p.codec.Of(k)
		r := watchcache.Resource{
			Name: k.GVR().GroupResource().String(), Prefix: endpoints.KeyPrefix(p.root(), k),
			Attributes: func(_ string, value []byte) (watchcache.Attributes, error) {
				a, err := coder.Attributes(value)
				return watchcache.Attributes{
					Namespace: a.Namespace, Name: a.Name, Labels: watchcache.MakeSet(a.Labels), Fields: watchcache.MakeSet(a.Fields),
				}, err
			},
		}
		for _, f := range k.Selectable {
			if f.Index {
				r.Index = append(r.Index, f.Label)
			}
		}
		out = append(out, r)
	}
	return out
}

// sharesStore tells whether another kind is stored at the same place.
func (p *parts) sharesStore(k *registry.Kind) bool {
	for _, other := range p.catalog.Kinds() {
		if other != k && !other.Virtual && other.Stored.Prefix == k.Stored.Prefix {
			return true
		}
	}
	return false
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
	zip, err := compress.New(compressedBytes, p.metrics)
	if err != nil {
		return err
	}
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	p.allocator = p.newAllocator(host)
	up, err := upstream.New(p.options.Upstream, p.metrics)
	if err != nil {
		return err
	}
	p.close = append(p.close, up.Close)
	p.api = endpoints.New(endpoints.Config{
		Catalog: p.catalog, Codec: p.codec, Store: p.store, Cache: p.cache, Compress: zip, Root: p.root(), Admission: p.admission(),
		Upstream: up, TranslateCommands: p.options.Features.Enabled(features.TranslateStreamCloseWebsocketRequests),
		TunnelPortForward: p.options.Features.Enabled(features.PortForwardWebsockets), SplitLogStreams: p.options.Features.Enabled(features.PodLogsQuerySplitStreams),
		Declared:   p.declared(),
		Allocators: map[schema.GroupResource]endpoints.Allocator{{Resource: "services"}: serviceAllocator{p.allocator}},
		Tokens:     p.authn.tokens, Issuer: p.authn.issuer, Authorizer: p.authz.chain, EventTTL: p.options.EventTTL,
		MinRequestTimeout: time.Duration(p.options.MinRequestTimeout) * time.Second, BookmarkInterval: time.Minute,
		Media: p.media(), WatchList: p.options.Features.Enabled(features.WatchList), Stopping: stopping, Logger: p.log, Metrics: endpoints.NewMetrics(p.metrics),
	})
	return p.buildBootstrap(host)
}

// declared says what the gates let declared rules do.
func (p *parts) declared() endpoints.Declared {
	on := p.options.Features.Enabled
	return endpoints.Declared{Enabled: on(features.DeclarativeValidation), Takeover: on(features.DeclarativeValidationTakeover)}
}

// media are the media types that the gates leave on.
func (p *parts) media() negotiate.Media {
	return negotiate.Media{CBOR: p.options.Features.Enabled(features.CBORServingAndStorage)}
}

func (p *parts) admission() *admission.Chain {
	var plugins []admission.Plugin
	if p.options.Admission.enabled(namespacelifecycle.Name) {
		plugins = append(plugins, admission.Plugin{
			Name: namespacelifecycle.Name, Plugin: &namespacelifecycle.Plugin{Namespaces: &namespaces{p}},
		})
	}
	if p.options.Admission.enabled(nodetaint.Name) {
		plugins = append(plugins, admission.Plugin{Name: nodetaint.Name, Plugin: nodetaint.Plugin{}})
	}
	if p.options.Admission.enabled(noderestriction.Name) {
		plugins = append(plugins, p.nodeRestriction())
	}
	return admission.NewChain(append(plugins, p.escalation())...)
}

// boundPort is the port that the server listens at, also when any would do.
func (p *parts) boundPort() int {
	if a, ok := p.server.Addr().(*net.TCPAddr); ok {
		return a.Port
	}
	return p.options.Serving.SecurePort
}

func (p *parts) buildBootstrap(host string) error {
	endpointsKind := p.codec.Of(p.catalog.Resource(corev1.SchemeGroupVersion.WithResource("endpoints")))
	o := p.options
	p.bootstrap = bootstrap.New(bootstrap.Config{
		API: p.api, Store: p.store, Root: p.root(), Logger: p.log, Now: time.Now,
		EncodeEndpoints: func(e *corev1.Endpoints) ([]byte, error) { return endpointsKind.EncodeStored(e) },
		Identity:        bootstrap.Identity(host, p.boundPort()), Instance: uuid.NewString(), Hostname: host,
		AdvertiseAddress: o.AdvertiseAddress, SecurePort: p.boundPort(), ServiceRanges: o.serviceRanges, NodePort: o.KubernetesNodePort,
		AuthenticationConfig: p.authenticationConfig, APIServices: apiServices(p.served), PolicySeen: p.policySeen,
		RepairAllocations: p.allocator.Repair, RepairInterval: allocator.RepairInterval,
	})
	return nil
}

// authenticationConfig is what extension servers need to know.
func (p *parts) authenticationConfig() map[string]string {
	data := maps.Clone(p.options.Authentication.proxyConfig())
	if data == nil {
		data = map[string]string{}
	}
	if b := p.server.ClientCABundle(); b != nil {
		if pem, err := os.ReadFile(p.options.Serving.ClientCAFile); err == nil {
			data["client-ca-file"] = string(pem)
		}
	}
	return data
}

func (p *parts) buildHandler(context.Context) error {
	p.checks()
	responder := endpoints.Responder{Codec: p.codec, Media: p.media()}
	docs, err := discovery.New(p.served, responder.Object, discovery.WithServerAddress(p.address()), discovery.WithPaths(p.paths))
	if err != nil {
		return err
	}
	spec, err := openapi.New(p.served, p.codec.Scheme())
	if err != nil {
		return err
	}
	mux := &server.Mux{
		Catalog: p.served, All: p.catalog, API: p.api, Discovery: docs, Health: p.health, Metrics: metrics.Handler(p.metrics, p.log), OpenAPI: spec, Issuer: p.authn.documents, Profiling: p.options.Profiling,
	}
	users, err := p.users()
	if err != nil {
		return err
	}
	h, err := server.Handler(server.Config{
		Mux: mux, Responder: responder, Authenticator: users, Authorizer: p.authz.metrics.Requests(p.authz.chain),
		Metrics: server.NewMetrics(p.metrics), Known: p.known, Logger: p.log, RequestTimeout: p.options.Serving.RequestTimeout,
		MaxInFlight: p.options.MaxInFlight, MaxMutatingInFlight: p.options.MaxMutatingInFlight,
		StrictTransportSecurity: p.options.HSTS, GoawayChance: p.options.GoawayChance, AllowedOrigins: p.options.AllowedOrigins,
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
	})
	p.handler = engine
	return nil
}

// known tells whether a request names something that is served.
func (p *parts) known(i *request.Info) bool {
	return p.api.Known(i) && (p.catalog.Resource(i.GVR()) == nil || p.served.Resource(i.GVR()) != nil)
}

// address is where clients reach this server.
func (p *parts) address() string {
	return net.JoinHostPort(p.options.AdvertiseAddress.String(), strconv.Itoa(p.boundPort()))
}

// paths are what is served beside the API.
func (p *parts) paths() []string {
	paths := []string{"/metrics", "/openapi/v2", "/openapi/v3", "/version"}
	for _, e := range health.Endpoints() {
		paths = append(paths, "/"+string(e))
	}
	for _, check := range p.checkNames {
		paths = append(paths, "/healthz/"+check, "/livez/"+check, "/readyz/"+check)
	}
	return append(paths, p.issuerPaths()...)
}

// checks are the health checks in the order of their names' appearance.
func (p *parts) checks() {
	add := func(name string, check func(*http.Request) error) {
		p.health.Add(name, check)
		p.checkNames = append(p.checkNames, name)
	}
	add("log", func(*http.Request) error { return nil })
	add("etcd", func(r *http.Request) error { return p.store.Ping(r.Context()) })
	p.health.Add("etcd-readiness", func(r *http.Request) error { return p.store.Ping(r.Context()) }, health.Readyz)
	p.health.Add("informer-sync", func(*http.Request) error {
		if !p.cache.Ready() {
			return watchcache.ErrNotReady
		}
		return p.authz.policy.Check(nil)
	}, health.Readyz)
	p.health.Add("fan-out", func(r *http.Request) error { return p.fanout.Check(r.Context()) }, health.Readyz)
	p.bootstrap.Checks(add)
}
