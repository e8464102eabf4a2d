package build

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"time"

	"binnacle/libs/options"
	"binnacle/libs/serving"
	"binnacle/libs/serving/health"
	"binnacle/libs/serving/metrics"
	"binnacle/libs/version"
	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/config"
	"binnacle/services/apiserver/internal/controllers/storageversions"
	"binnacle/services/apiserver/internal/rest/handlers"
	"binnacle/services/apiserver/internal/security/flowcontrol/width"
	"binnacle/services/apiserver/internal/server"
)

// routing finds the handler of a request that has passed all filters.
type routing struct {
	mux             http.Handler
	updateDocuments func(http.Handler) http.Handler
}

// newMux creates the routing.
func newMux(b *base, o *config.Options, front *listener, s *stores, sec *security, api *handlers.API, docs *documents) (*routing, error) {
	shown, err := o.Metrics.Gatherer(s.overrideClusters.gatherer(b.metrics), b.log)
	if err != nil {
		return nil, err
	}
	mux := &server.Mux{
		Flow: sec.flow.control, API: api, Discovery: docs.discovery, Health: front.health, Metrics: metrics.Handler(shown, b.log), SLIs: metrics.Handler(front.health.SLIs(), b.log), OpenAPI: docs.openapi, Issuer: sec.authn.documents, Profiling: o.Debug.Profiling,
		Verbosity: func(n int) { options.SetVerbosity(b.log, n) },
	}
	zpages(mux, o)
	if o.Debug.LogFiles {
		mux.LogFiles = "/var/log"
	}
	return &routing{mux, docs.custom.WithRefresh}, nil
}

// newHandler creates the handler of all requests: the filters before the routes.
func newHandler(b *base, o *config.Options, front *serving.Server, routes *routing, sets *apiSets, sec *security, custom *customResources, d *delegates, versions *storageversions.Manager, reloading func(*requestinfo.Info) bool) (http.Handler, error) {
	users, err := sec.authn.authenticator(front.ClientCAs)
	if err != nil {
		return nil, err
	}
	c := server.Config{
		Mux: routes.mux, UpdateDocuments: routes.updateDocuments, Responder: sets.respond, Authenticator: users, Authorizer: sec.authz.metrics.Requests(sec.authz.chain),
		Metrics: server.NewMetrics(b.metrics), Kinds: sets.kinds, Delegates: d.foreign(), Reloading: reloading, Refresh: func(ctx context.Context) *apiset.Set { return custom.informer.Newest(ctx, sets.kinds) }, Logger: b.log, RequestTimeout: o.Serving.RequestTimeout,
		Bounds: b.bounds.Requests, Flow: sec.flow.control, Width: width.Of, MaxInFlight: o.Requests.MaxInFlight, MaxMutatingInFlight: o.Requests.MaxMutatingInFlight,
		StrictTransportSecurity: o.Requests.HSTS, GoawayChance: o.Requests.GoawayChance, AllowedOrigins: o.Requests.AllowedOrigins,
		Audit: sec.audit.auditor, Traces: b.traces, LargeRequests: front.LargeRequests(),
	}
	if versions != nil {
		c.StorageVersionPending = versions.Held
	}
	return server.Handler(c)
}

// paths returns the paths that are served in addition to the API.
func paths(o *config.Options, h *health.Registry, issuer []string) []string {
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

// zpages adds /flagz and /statusz to the mux if their gates are enabled.
func zpages(mux *server.Mux, o *config.Options) {
	const name = "kube-apiserver"
	if o.Features.Enabled("ComponentFlagz") {
		mux.Flagz = server.Flagz(name, o.FlagValues())
	}
	if o.Features.Enabled("ComponentStatusz") {
		mux.Statusz = server.Statusz(name, time.Now(), server.Versions{
			Binary:    strings.TrimPrefix(version.Kubernetes, "v"),
			Emulation: fmt.Sprintf("%s.%d", version.Major, o.Compatibility.Emulation().Minor),
		})
	}
}

// countContention enables the block and mutex profiles.
func countContention(o *config.DebugOptions) {
	if o.Profiling && o.ContentionProfiling {
		runtime.SetBlockProfileRate(1)
		runtime.SetMutexProfileFraction(1)
	}
}
