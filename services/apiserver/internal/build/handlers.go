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
	b *base,
	requestOptions *config.RequestOptions,
	caches *caches,
	stores *stores,
	sets *apiSets,
	authz *authorization,
	chain *admission.Chain,
	serviceAllocator *allocator.Allocator,
	barriers writeBarriers,
) *writes.Writer {
	enabled := b.gates.Enabled
	return writes.New(writes.Config{
		Codec:          caches.codec,
		Fields:         sets.fields,
		Store:          stores.values,
		Admission:      chain,
		Authorizer:     authz.chain,
		CorruptObjects: corruptObjectReporter(b),
		EventTTL:       requestOptions.EventTTL,
		Declared: writes.DeclarativeValidationOptions{
			Enabled:  enabled(features.DeclarativeValidation),
			Takeover: enabled(features.DeclarativeValidationTakeover),
		},
		Allocators: map[schema.GroupResource]writes.Allocator{{Resource: "services"}: serviceAllocator},
		Written:    caches.recordWrite,
		Updated: map[schema.GroupResource]func(old, obj registry.Object){
			{Group: certificatesv1.GroupName, Resource: "certificatesigningrequests"}: certificates.NewDurations(b.metrics).Observe,
		},
		WaitForRevision:    barriers,
		NoGarbageCollector: !requestOptions.GarbageCollector,
		Now:                time.Now,
		Logger:             b.log,
		Metrics:            writes.NewMetrics(b.metrics),
	})
}

// newHandlers creates the handlers of the resource API.
func newHandlers(
	b *base,
	o *config.Options,
	caches *caches,
	stores *stores,
	sets *apiSets,
	sec *security,
	writer *writes.Writer,
	httpsServer *serving.Server,
) (*handlers.API, error) {
	// 1. Cancel stopping when long-running requests must end.
	stopping, cancel := context.WithCancel(context.Background())
	b.lifetime.onClose(cancel)
	b.lifetime.inBackground("end of long-running requests", func(ctx context.Context) error {
		select {
		case <-httpsServer.LongRunningStop():
			cancel()
		case <-ctx.Done():
		}
		return nil
	})

	// 2. Create the parts that only handlers use.
	compressor, err := compress.New(caches.memory, b.metrics)
	if err != nil {
		return nil, err
	}
	upstream, err := newUpstream(b, o.Upstream)
	if err != nil {
		return nil, err
	}
	metrics := handlers.NewMetrics(b.metrics)
	metrics.KeepWhileServed(sets.kinds)

	return handlers.New(handlers.Config{
		Kinds:          sets.allKinds,
		Store:          stores.values,
		Root:           b.root,
		Writer:         writer,
		CorruptObjects: corruptObjectReporter(b),
		Responses: responsewriters.Responses{
			Responder:   sets.respond,
			Compress:    compressor,
			Limiter:     overload.PrincipalLimiter{Queue: httpsServer.LongResponses()},
			Slow:        overload.SlowPrincipalLimiter{PrincipalLimiter: overload.PrincipalLimiter{Queue: httpsServer.LargeRequests()}},
			Conversions: responsewriters.NewConversions(b.limits.Conversions),
			Now:         time.Now,
		},
		Operations:              newOperations(b, sets, sec, writer, upstream),
		Components:              newComponents(stores),
		DeleteCollectionWorkers: o.Requests.DeleteCollectionWorkers,
		MinRequestTimeout:       time.Duration(o.Requests.MinRequestTimeout) * time.Second,
		BookmarkInterval:        handlers.BookmarkInterval,
		WatchList:               b.gates.Enabled(features.WatchList),
		NoCache:                 !o.Compatibility.WatchCache,
		Stopping:                stopping,
		ProxyLimit:              reverseproxy.NewLimit(o.Upstream.MaxProxied, b.limits.MinProxied, b.limits.MaxProxied, b.metrics),
		Logger:                  b.log,
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
	b *base,
	sets *apiSets,
	sec *security,
	writer *writes.Writer,
	upstream *kubeletproxy.Upstream,
) []handlers.Operation {
	enabled, respond := b.gates.Enabled, sets.respond
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
	b *base,
	o *config.Options,
	listener *listener,
	stores *stores,
	sec *security,
	api *handlers.API,
	docs *documents,
) (*router, error) {
	gatherer, err := o.Metrics.Gatherer(stores.overrideClusters.gatherer(b.metrics), b.log)
	if err != nil {
		return nil, err
	}
	serveMetrics := metrics.Handler
	if o.Debug.Profiling {
		serveMetrics = metrics.HandlerWithReset
	}
	mux := &routing.Mux{
		Flow:      sec.flow.Control,
		API:       api,
		Discovery: docs.discovery,
		Health:    listener.health,
		Metrics:   serveMetrics(gatherer, b.log),
		SLIs:      serveMetrics(listener.health.SLIs(), b.log),
		OpenAPI:   docs.openapi,
		Issuer:    sec.authn.documents,
		Profiling: o.Debug.Profiling,
		Verbosity: func(n int) { options.SetVerbosity(b.log, n) },
	}
	addZPages(mux, o)
	if o.Debug.LogFiles {
		mux.LogFiles = "/var/log"
	}
	return &router{mux: mux, updateDocuments: docs.custom.WithRefresh}, nil
}

// newHandler creates the handler of all requests: the filters, followed by the router. versions is nil
// if storage versions are not tracked. reloading reports whether the cache of a request's resource is
// being reloaded.
func newHandler(
	b *base,
	o *config.Options,
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
	c := server.Config{
		Mux:             routes.mux,
		UpdateDocuments: routes.updateDocuments,
		Responder:       sets.respond,
		Authenticator:   authenticator,
		Authorizer:      sec.authz.metrics.Requests(sec.authz.chain),
		Metrics:         telemetry.NewMetrics(b.metrics),
		Kinds:           sets.kinds,
		Delegates:       delegates.forOtherServers(),
		Reloading:       reloading,
		Refresh:         func(ctx context.Context) *apiset.Set { return custom.informer.NewestSet(ctx, sets.kinds) },
		Logger:          b.log,
		RequestTimeout:  o.Serving.RequestTimeout,
		Overload: overload.Options{
			Bounds:              b.limits.Requests,
			Flow:                sec.flow.Control,
			Width:               width.Estimate,
			MaxInFlight:         o.Requests.MaxInFlight,
			MaxMutatingInFlight: o.Requests.MaxMutatingInFlight,
			LargeRequests:       httpsServer.LargeRequests(),
		},
		StrictTransportSecurity: o.Requests.HSTS,
		GoawayChance:            o.Requests.GoawayChance,
		AllowedOrigins:          o.Requests.AllowedOrigins,
		Audit:                   sec.audit.auditor,
		Traces:                  b.traces,
	}
	if versions != nil {
		c.StorageVersionPending = versions.WritesBlocked
	}
	return server.Handler(c)
}

// pathsOutsideAPI returns the paths that are served in addition to the API, for discovery. issuer
// holds the paths of the token issuer's documents.
func pathsOutsideAPI(o *config.Options, h *health.Registry, issuer []string) []string {
	paths := []string{"/metrics", "/metrics/slis", "/openapi/v2", "/openapi/v3", "/openapi/v3/", "/version"}
	for _, e := range health.Endpoints() {
		paths = append(paths, "/"+string(e))
		for _, check := range h.Names(e) {
			paths = append(paths, "/"+string(e)+"/"+check)
		}
	}
	if o.Debug.LogFiles {
		paths = append(paths, "/logs")
	}
	if o.Features.Enabled("ComponentFlagz") {
		paths = append(paths, "/flagz")
	}
	if o.Features.Enabled("ComponentStatusz") {
		paths = append(paths, "/statusz")
	}
	return append(paths, issuer...)
}

// addZPages adds /flagz and /statusz to the mux if their feature gates are enabled.
func addZPages(mux *routing.Mux, o *config.Options) {
	const name = "kube-apiserver"
	if o.Features.Enabled("ComponentFlagz") {
		mux.Flagz = routing.Flagz(name, o.FlagValues())
	}
	if o.Features.Enabled("ComponentStatusz") {
		mux.Statusz = routing.Statusz(name, time.Now(), routing.Versions{
			Binary:    strings.TrimPrefix(version.Kubernetes, "v"),
			Emulation: fmt.Sprintf("%s.%d", version.Major, o.Compatibility.Emulation().Minor),
		})
	}
}

// enableContentionProfiles enables the block and mutex profiles if the options demand it.
func enableContentionProfiles(o *config.DebugOptions) {
	if o.Profiling && o.ContentionProfiling {
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
	b *base,
	serviceOptions *config.ServiceOptions,
	caches *caches,
	stores *stores,
	client *internalclient.Client,
) *allocator.Allocator {
	var prefixes []netip.Prefix
	for _, r := range serviceOptions.Ranges {
		if prefix, err := netip.ParsePrefix(r.String()); err == nil {
			prefixes = append(prefixes, prefix)
		}
	}
	a := allocator.New(allocator.Config{
		API:        client,
		Store:      stores.store,
		Root:       b.root,
		Cache:      caches.cache,
		Services:   viewOf[*corev1.Service](caches, corev1.SchemeGroupVersion.WithResource("services")),
		Addresses:  viewOf[*networkingv1.IPAddress](caches, networkingv1.SchemeGroupVersion.WithResource("ipaddresses")),
		Ranges:     viewOf[*networkingv1.ServiceCIDR](caches, networkingv1.SchemeGroupVersion.WithResource("servicecidrs")),
		Prefixes:   prefixes,
		Ports:      serviceOptions.NodePorts,
		DualWrite:  !b.gates.Enabled(features.DisableAllocatorDualWrite),
		Bitmap:     !b.gates.Enabled(features.MultiCIDRServiceAllocator),
		Scheme:     caches.codec.Scheme(),
		Identity:   b.host,
		Now:        time.Now,
		Logger:     b.log,
		Registerer: b.metrics,
	})
	if b.gates.Enabled(features.MultiCIDRServiceAllocator) {
		b.lifetime.whileServing("repair of addresses of services", a.FollowServices)
		b.lifetime.whileServing("repair of deleted addresses", a.FollowAddresses)
	}
	return a
}

// newUpstream creates the proxy to kubelets and pods.
func newUpstream(b *base, o kubeletproxy.Options) (*kubeletproxy.Upstream, error) {
	if o.CAFile == "" {
		b.log.Warn("kubelets are not verified: --kubelet-certificate-authority is not given")
	}
	o.MaxPages = b.limits.MaxRewrittenPages
	upstream, err := kubeletproxy.New(o, b.metrics, b.egress.DialerFor(egress.Cluster))
	if err != nil {
		return nil, err
	}
	b.lifetime.onClose(upstream.Close)
	return upstream.Traced(b.traces), nil
}
