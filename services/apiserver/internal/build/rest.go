package build

import (
	"context"
	"slices"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/libs/features"
	"binnacle/libs/serving"
	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/api/kinds/certificates"
	"binnacle/services/apiserver/internal/config"
	"binnacle/services/apiserver/internal/proxy/kubeletproxy"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/rest/allocator"
	"binnacle/services/apiserver/internal/rest/compress"
	"binnacle/services/apiserver/internal/rest/handlers"
	"binnacle/services/apiserver/internal/rest/responsewriters"
	"binnacle/services/apiserver/internal/rest/subresources/pods"
	"binnacle/services/apiserver/internal/rest/subresources/reviews"
	"binnacle/services/apiserver/internal/rest/subresources/tokens"
	"binnacle/services/apiserver/internal/rest/writes"
	"binnacle/services/apiserver/internal/server"
)

// settled maps a resource to a function that waits until a write of it has taken effect.
type settled map[schema.GroupResource]func(context.Context, int64)

// newWriter creates the writer of all objects.
func newWriter(b *base, o *config.RequestOptions, k *caches, s *stores, sets *apiSets, z *authorization, chain *admission.Chain, services *allocator.Allocator, effects settled) *writes.Writer {
	on := b.gates.Enabled
	return writes.New(writes.Config{
		Codec: k.codec, Fields: sets.fields, Store: s.values, Admission: chain, Authorizer: z.chain, CorruptObjects: damage(b), EventTTL: o.EventTTL,
		Declared:   writes.Declared{Enabled: on(features.DeclarativeValidation), Takeover: on(features.DeclarativeValidationTakeover)},
		Allocators: map[schema.GroupResource]writes.Allocator{{Resource: "services"}: serviceAllocator{services}},
		Written:    k.recordWrite,
		Updated: map[schema.GroupResource]func(old, obj registry.Object){
			{Group: certificatesv1.GroupName, Resource: "certificatesigningrequests"}: certificates.NewDurations(b.metrics).Observe,
		},
		Settled:            effects,
		NoGarbageCollector: !o.GarbageCollector,
		Now:                time.Now, Logger: b.log, Metrics: writes.NewMetrics(b.metrics),
	})
}

// newHandlers creates the handlers of the resource API.
func newHandlers(b *base, o *config.Options, k *caches, s *stores, sets *apiSets, sec *security, w *writes.Writer, front *serving.Server) (*handlers.API, error) {
	stopping, cancel := context.WithCancel(context.Background())
	b.life.onClose(cancel)
	b.life.inBackground("end of long-running requests", func(ctx context.Context) error {
		select {
		case <-front.LongRunningStop():
			cancel()
		case <-ctx.Done():
		}
		return nil
	})
	zip, err := compress.New(k.memory, b.metrics)
	if err != nil {
		return nil, err
	}
	up, err := newKubelets(b, o.Upstream)
	if err != nil {
		return nil, err
	}
	metrics := handlers.NewMetrics(b.metrics)
	metrics.KeepWhileServed(sets.kinds)
	return handlers.New(handlers.Config{
		Kinds: sets.allKinds, Store: s.values, Root: b.root, Writes: w, CorruptObjects: damage(b),
		Writers:    responsewriters.Writers{Responder: sets.respond, Compress: zip, Limiter: server.Permits{Queue: front.LongResponses()}, Slow: server.SlowPermits{Permits: server.Permits{Queue: front.LargeRequests()}}, Conversions: responsewriters.NewConversions(), Now: time.Now},
		Operations: operations(b, sets, sec, w, up), Components: components(s), DeleteCollectionWorkers: o.Requests.DeleteCollectionWorkers,
		MinRequestTimeout: time.Duration(o.Requests.MinRequestTimeout) * time.Second, BookmarkInterval: time.Minute,
		WatchList: b.gates.Enabled(features.WatchList), NoCache: !o.Compatibility.WatchCache,
		Stopping: stopping, ProxyLimit: newProxyLimit(b, o.Upstream.MaxProxied), Logger: b.log, Metrics: metrics,
	}), nil
}

// operations returns the handlers of operations other than reads and writes of stored objects.
func operations(b *base, sets *apiSets, sec *security, w *writes.Writer, up *kubeletproxy.Upstream) []handlers.Operation {
	on, respond := b.gates.Enabled, sets.respond
	return slices.Concat(
		pods.Operations(pods.Config{
			Responder: respond, Writes: w, Fields: sets.fields, Upstream: up, Now: time.Now,
			TranslateCommands: on(features.TranslateStreamCloseWebsocketRequests),
			TunnelPortForward: on(features.PortForwardWebsockets), SplitLogStreams: on(features.PodLogsQuerySplitStreams),
			BindingLabels: on(features.PodTopologyLabelsAdmission),
		}),
		tokens.Operations(tokens.Config{Responder: respond, Writes: w, Fields: sets.fields, Issuer: sec.authn.issuer, Now: time.Now}),
		reviews.Operations(reviews.Config{Responder: respond, Writes: w, Tokens: sec.authn.tokens, Authorizer: sec.authz.chain, Now: time.Now}),
	)
}
