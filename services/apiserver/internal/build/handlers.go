package build

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/libs/features"
	"binnacle/libs/options"
	"binnacle/libs/serving"
	"binnacle/libs/serving/health"
	"binnacle/libs/serving/metrics"
	"binnacle/libs/version"
	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/api/kinds/certificates"
	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/config"
	"binnacle/services/apiserver/internal/controllers/storageversions"
	"binnacle/services/apiserver/internal/proxy/egress"
	"binnacle/services/apiserver/internal/proxy/kubeletproxy"
	"binnacle/services/apiserver/internal/proxy/reverseproxy"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/rest/allocator"
	"binnacle/services/apiserver/internal/rest/componentstatus"
	"binnacle/services/apiserver/internal/rest/compress"
	"binnacle/services/apiserver/internal/rest/handlers"
	"binnacle/services/apiserver/internal/rest/internalclient"
	"binnacle/services/apiserver/internal/rest/responsewriters"
	"binnacle/services/apiserver/internal/rest/subresources/pods"
	"binnacle/services/apiserver/internal/rest/subresources/reviewhandlers"
	"binnacle/services/apiserver/internal/rest/subresources/tokens"
	"binnacle/services/apiserver/internal/rest/writes"
	"binnacle/services/apiserver/internal/security/flowcontrol/width"
	"binnacle/services/apiserver/internal/server"
	"binnacle/services/apiserver/internal/server/overload"
	"binnacle/services/apiserver/internal/server/routing"
	"binnacle/services/apiserver/internal/server/telemetry"
)

// writeBarriers maps a resource to a function that waits until a write at a revision has taken
// effect in this server.
type writeBarriers map[schema.GroupResource]func(context.Context, int64)

// newWriter creates the writer, through which all writes of objects pass.
func newWriter(
	base *base,
	requestOptions *config.RequestOptions,
	caches *caches,
	stores *stores,
	sets *apiSets,
	authz *authorization,
	chain *admission.Chain,
	serviceAllocator *allocator.Allocator,
	barriers writeBarriers,
) *writes.Writer {
	enabled := base.gates.Enabled
	return writes.New(writes.Config{
		Codec:          caches.codec,
		Fields:         sets.fields,
		Store:          stores.values,
		Admission:      chain,
		Authorizer:     authz.chain,
		CorruptObjects: corruptObjectReporter(base),
		EventTTL:       requestOptions.EventTTL,
		Declared: writes.DeclarativeValidationOptions{
			Enabled:  enabled(features.DeclarativeValidation),
			Takeover: enabled(features.DeclarativeValidationTakeover),
		},
		Allocators: map[schema.GroupResource]writes.Allocator{{Resource: "services"}: serviceAllocator},
		Written:    caches.recordWrite,
		Updated: map[schema.GroupResource]func(old, obj registry.Object){
			{Group: certificatesv1.GroupName, Resource: "certificatesigningrequests"}: certificates.NewDurations(base.metrics).Observe,
		},
		WaitForRevision:    barriers,
		NoGarbageCollector: !requestOptions.GarbageCollector,
		Now:                time.Now,
		Logger:             base.log,
		Metrics:            writes.NewMetrics(base.metrics),
	})
}

// newHandlers creates the handlers of the resource API.
func newHandlers(
	base *base,
	options *config.Options,
	caches *caches,
	stores *stores,
	sets *apiSets,
	sec *security,
	writer *writes.Writer,
	httpsServer *serving.Server,
) (*handlers.API, error) {
	// 1. Cancel stopping when long-running requests must end.
	stopping, cancel := context.WithCancel(context.Background())
	base.lifetime.onClose(cancel)
	base.lifetime.inBackground("end of long-running requests", func(ctx context.Context) error {
		select {
		case <-httpsServer.LongRunningStop():
			cancel()
		case <-ctx.Done():
		}
		return nil
	})

	// 2. Create the parts that only handlers use.
	compressor, err := compress.New(caches.memory, base.metrics)
	if err != nil {
		return nil, err
	}
	upstream, err := newUpstream(base, options.Upstream)
	if err != nil {
		return nil, err
	}
	metrics := handlers.NewMetrics(base.metrics)
	metrics.KeepWhileServed(sets.kinds)

	return handlers.New(handlers.Config{
		Kinds:          sets.allKinds,
		Store:          stores.values,
		Root:           base.root,
		Writer:         writer,
		CorruptObjects: corruptObjectReporter(base),
		Responses: responsewriters.Responses{
			Responder:   sets.respond,
			Compress:    compressor,
			Limiter:     overload.PrincipalLimiter{Queue: httpsServer.LongResponses()},
			Slow:        overload.SlowPrincipalLimiter{PrincipalLimiter: overload.PrincipalLimiter{Queue: httpsServer.LargeRequests()}},
			Conversions: responsewriters.NewConversions(base.limits.Conversions),
			Now:         time.Now,
		},
		Operations:              newOperations(base, sets, sec, writer, upstream),
		Components:              newComponents(stores),
		DeleteCollectionWorkers: options.Requests.DeleteCollectionWorkers,
		MinRequestTimeout:       time.Duration(options.Requests.MinRequestTimeout) * time.Second,
		BookmarkInterval:        handlers.BookmarkInterval,
		WatchList:               base.gates.Enabled(features.WatchList),
		NoCache:                 !options.Compatibility.WatchCache,
		Stopping:                stopping,
		ProxyLimit:              reverseproxy.NewLimit(options.Upstream.MaxProxied, base.limits.MinProxied, base.limits.MaxProxied, base.metrics),
		Logger:                  base.log,
		Metrics:                 metrics,
	}), nil
}

// newComponents returns the components of the control plane for componentstatuses, in list order.
func newComponents(stores *stores) []componentstatus.Component {
	manager, scheduler := componentstatus.Controllers()
	return append([]componentstatus.Component{
		manager, componentstatus.Etcd("etcd-0", stores.store), scheduler,
	}, stores.overrideClusters.components()...)
}

// newOperations returns the handlers of operations other than reads and writes of stored objects.
func newOperations(
	base *base,
	sets *apiSets,
	sec *security,
	writer *writes.Writer,
	upstream *kubeletproxy.Upstream,
) []handlers.Operation {
	enabled, respond := base.gates.Enabled, sets.respond
	return slices.Concat(
		pods.Operations(pods.Config{
			Responder:         respond,
			Writer:            writer,
			Fields:            sets.fields,
			Upstream:          upstream,
			Now:               time.Now,
			TranslateCommands: enabled(features.TranslateStreamCloseWebsocketRequests),
			TunnelPortForward: enabled(features.PortForwardWebsockets),
			SplitLogStreams:   enabled(features.PodLogsQuerySplitStreams),
			BindingLabels:     enabled(features.PodTopologyLabelsAdmission),
		}),
		tokens.Operations(tokens.Config{
			Responder: respond,
			Writer:    writer,
			Fields:    sets.fields,
			Issuer:    sec.authn.issuer,
			Now:       time.Now,
		}),
		reviewhandlers.Operations(reviewhandlers.Config{
			Responder:  respond,
			Writer:     writer,
			Tokens:     sec.authn.tokens,
			Authorizer: sec.authz.chain,
			Now:        time.Now,
		}),
	)
}

// router handles requests that have passed all filters.
type router struct {
	mux http.Handler
	// updateDocuments wraps a handler so that it updates the documents about the API when needed.
	updateDocuments func(http.Handler) http.Handler
}

// newRouter creates the router.
func newRouter(
	base *base,
	serverOptions *config.Options,
	listener *listener,
	stores *stores,
	sec *security,
	api *handlers.API,
	docs *documents,
) (*router, error) {
	gatherer, err := serverOptions.Metrics.Gatherer(stores.overrideClusters.gatherer(base.metrics), base.log)
	if err != nil {
		return nil, err
	}
	serveMetrics := metrics.Handler
	if serverOptions.Debug.Profiling {
		serveMetrics = metrics.HandlerWithReset
	}
	mux := &routing.Mux{
		Flow:      sec.flow.Control,
		API:       api,
		Discovery: docs.discovery,
		Health:    listener.health,
		Metrics:   serveMetrics(gatherer, base.log),
		SLIs:      serveMetrics(listener.health.SLIs(), base.log),
		OpenAPI:   docs.openapi,
		Issuer:    sec.authn.documents,
		Profiling: serverOptions.Debug.Profiling,
		Verbosity: func(n int) { options.SetVerbosity(base.log, n) },
	}
	addZPages(mux, serverOptions)
	if serverOptions.Debug.LogFiles {
		mux.LogFiles = "/var/log"
	}
	return &router{mux: mux, updateDocuments: docs.custom.WithRefresh}, nil
}

// newHandler creates the handler of all requests: the filters, followed by the router. versions is nil
// if storage versions are not tracked. reloading reports whether the cache of a request's resource is
// being reloaded.
func newHandler(
	base *base,
	options *config.Options,
	httpsServer *serving.Server,
	routes *router,
	sets *apiSets,
	sec *security,
	custom *customResources,
	delegates *delegates,
	versions *storageversions.Manager,
	reloading func(*requestinfo.Info) bool,
) (http.Handler, error) {
	authenticator, err := sec.authn.newChain(httpsServer.ClientCAs)
	if err != nil {
		return nil, err
	}
	serverConfig := server.Config{
		Mux:             routes.mux,
		UpdateDocuments: routes.updateDocuments,
		Responder:       sets.respond,
		Authenticator:   authenticator,
		Authorizer:      sec.authz.metrics.Requests(sec.authz.chain),
		Metrics:         telemetry.NewMetrics(base.metrics),
		Kinds:           sets.kinds,
		Delegates:       delegates.forOtherServers(),
		Reloading:       reloading,
		Refresh:         func(ctx context.Context) *apiset.Set { return custom.informer.NewestSet(ctx, sets.kinds) },
		Logger:          base.log,
		RequestTimeout:  options.Serving.RequestTimeout,
		Overload: overload.Options{
			Bounds:              base.limits.Requests,
			Flow:                sec.flow.Control,
			Width:               width.Estimate,
			MaxInFlight:         options.Requests.MaxInFlight,
			MaxMutatingInFlight: options.Requests.MaxMutatingInFlight,
			LargeRequests:       httpsServer.LargeRequests(),
		},
		StrictTransportSecurity: options.Requests.HSTS,
		GoawayChance:            options.Requests.GoawayChance,
		AllowedOrigins:          options.Requests.AllowedOrigins,
		Audit:                   sec.audit.auditor,
		Traces:                  base.traces,
	}
	if versions != nil {
		serverConfig.StorageVersionPending = versions.WritesBlocked
	}
	return server.Handler(serverConfig)
}

// pathsOutsideAPI returns the paths that are served in addition to the API, for discovery. issuer
// holds the paths of the token issuer's documents.
func pathsOutsideAPI(options *config.Options, registry *health.Registry, issuer []string) []string {
	paths := []string{"/metrics", "/metrics/slis", "/openapi/v2", "/openapi/v3", "/openapi/v3/", "/version"}
	for _, endpoint := range health.Endpoints() {
		paths = append(paths, "/"+string(endpoint))
		for _, check := range registry.Names(endpoint) {
			paths = append(paths, "/"+string(endpoint)+"/"+check)
		}
	}
	if options.Debug.LogFiles {
		paths = append(paths, "/logs")
	}
	if options.Features.Enabled("ComponentFlagz") {
		paths = append(paths, "/flagz")
	}
	if options.Features.Enabled("ComponentStatusz") {
		paths = append(paths, "/statusz")
	}
	return append(paths, issuer...)
}

// addZPages adds /flagz and /statusz to the mux if their feature gates are enabled.
func addZPages(mux *routing.Mux, options *config.Options) {
	const name = "kube-apiserver"
	if options.Features.Enabled("ComponentFlagz") {
		mux.Flagz = routing.Flagz(name, options.FlagValues())
	}
	if options.Features.Enabled("ComponentStatusz") {
		mux.Statusz = routing.Statusz(name, time.Now(), routing.Versions{
			Binary:    strings.TrimPrefix(version.Kubernetes, "v"),
			Emulation: fmt.Sprintf("%s.%d", version.Major, options.Compatibility.Emulation().Minor),
		})
	}
}

// enableContentionProfiles enables the block and mutex profiles if the options demand it.
func enableContentionProfiles(options *config.DebugOptions) {
	if options.Profiling && options.ContentionProfiling {
		runtime.SetBlockProfileRate(1)
		runtime.SetMutexProfileFraction(1)
	}
}

// viewOf returns the cached objects of a built-in resource for the allocator.
func viewOf[T registry.Object](caches *caches, gvr schema.GroupVersionResource) allocator.View[T] {
	kind := caches.lookup(gvr)
	return allocator.View[T]{Store: kind.Store, Coder: kind.Coder}
}

// newAllocator creates the allocator of cluster IPs and node ports. It writes IPAddress objects
// with the internal client, although writes of services call it.
func newAllocator(
	base *base,
	serviceOptions *config.ServiceOptions,
	caches *caches,
	stores *stores,
	client *internalclient.Client,
) *allocator.Allocator {
	var prefixes []netip.Prefix
	for _, serviceRange := range serviceOptions.Ranges {
		if prefix, err := netip.ParsePrefix(serviceRange.String()); err == nil {
			prefixes = append(prefixes, prefix)
		}
	}
	services := allocator.New(allocator.Config{
		API:        client,
		Store:      stores.store,
		Root:       base.root,
		Cache:      caches.cache,
		Services:   viewOf[*corev1.Service](caches, corev1.SchemeGroupVersion.WithResource("services")),
		Addresses:  viewOf[*networkingv1.IPAddress](caches, networkingv1.SchemeGroupVersion.WithResource("ipaddresses")),
		Ranges:     viewOf[*networkingv1.ServiceCIDR](caches, networkingv1.SchemeGroupVersion.WithResource("servicecidrs")),
		Prefixes:   prefixes,
		Ports:      serviceOptions.NodePorts,
		DualWrite:  !base.gates.Enabled(features.DisableAllocatorDualWrite),
		Bitmap:     !base.gates.Enabled(features.MultiCIDRServiceAllocator),
		Scheme:     caches.codec.Scheme(),
		Identity:   base.host,
		Now:        time.Now,
		Logger:     base.log,
		Registerer: base.metrics,
	})
	if base.gates.Enabled(features.MultiCIDRServiceAllocator) {
		base.lifetime.whileServing("repair of addresses of services", services.FollowServices)
		base.lifetime.whileServing("repair of deleted addresses", services.FollowAddresses)
	}
	return services
}

// newUpstream creates the proxy to kubelets and pods.
func newUpstream(base *base, options kubeletproxy.Options) (*kubeletproxy.Upstream, error) {
	if options.CAFile == "" {
		base.log.Warn("kubelets are not verified: --kubelet-certificate-authority is not given")
	}
	options.MaxPages = base.limits.MaxRewrittenPages
	upstream, err := kubeletproxy.New(options, base.metrics, base.egress.DialerFor(egress.Cluster))
	if err != nil {
		return nil, err
	}
	base.lifetime.onClose(upstream.Close)
	return upstream.Traced(base.traces), nil
}
