package server

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/libs/serving"
	"binnacle/libs/tracing"
	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/rest/responsewriters"
	"binnacle/services/apiserver/internal/security/audit"
	"binnacle/services/apiserver/internal/security/authn"
	"binnacle/services/apiserver/internal/security/authz"
	"binnacle/services/apiserver/internal/server/overload"
	"binnacle/services/apiserver/internal/server/routing"
	"binnacle/services/apiserver/internal/server/telemetry"
)

// Config holds the dependencies of Handler.
type Config struct {
	// Mux routes a request that has passed all filters by its path.
	Mux http.Handler
	// UpdateDocuments, if set, returns a handler that brings the documents about the API up to date
	// before it passes a request for one of them to next.
	UpdateDocuments func(next http.Handler) http.Handler
	Responder       responsewriters.Responder
	Authenticator   authn.Authenticator
	Authorizer      authz.Authorizer
	Metrics         *telemetry.Metrics
	// Kinds is the API set. Each request sees the set that was current when the request arrived.
	Kinds *apiset.Live
	// Refresh, if set, returns the newest API set of all replicas. It is called for requests about
	// resources that Kinds does not contain yet, and may read the store.
	Refresh func(context.Context) *apiset.Set
	// Delegates finds other servers that serve resources that this server does not serve.
	Delegates routing.Delegates
	// Reloading, if set, reports whether the cache of the requested resource is being reloaded
	// because the store's history was replaced, for example by a restored backup.
	Reloading func(*requestinfo.Info) bool
	Logger    *slog.Logger
	// RequestTimeout bounds requests that are not long-running.
	RequestTimeout time.Duration
	// Overload configures the limits of requests.
	Overload overload.Options
	// StrictTransportSecurity is the value of the header, if any.
	StrictTransportSecurity []string
	// GoawayChance is the fraction of HTTP/2 requests after which the connection is closed, so that
	// clients spread over replicas.
	GoawayChance float64
	// Audit, if set, records audit events.
	Audit *audit.Auditor
	// StorageVersionPending, if set, reports whether writes of a resource
	// must wait for the registration of its storage version. lastError is the
	// last registration error. The function may block.
	StorageVersionPending func(ctx context.Context, r schema.GroupResource, custom bool) (lastError error, pending bool)
	// Slow is the duration from which a request is logged as slow; 0 means half a second.
	Slow time.Duration
	// Traces, if set, creates spans for requests.
	Traces *tracing.Provider
	// AllowedOrigins are patterns of origins that browsers may call from.
	AllowedOrigins []string
}

// Handler builds the filter chain. A request passes the filters from the first to the last of the
// list, a response from the last to the first.
func Handler(config Config) (http.Handler, error) {
	// 1. Build the filters that can fail.
	engine, err := config.engineFilter()
	if err != nil {
		return nil, err
	}
	cors, err := config.corsFilter()
	if err != nil {
		return nil, err
	}
	if config.Kinds != nil {
		config.Metrics.KeepWhileServed(config.Kinds)
	}

	// 2. List all filters in order.
	observe := config.telemetryFilters()
	protection := overload.New(config.Overload, observe)
	filters := []func(http.Handler) http.Handler{
		engine,                             // gin: a panic in a later filter becomes a 500
		config.withRequestInfo(protection), // all later filters need the request info
		protection.WithWork,                // large requests hold bytes and a permit
		observe.WithMetrics,                // access log and metrics cover the responses of all later filters
		config.withSecurityHeaders,         // on every response, also on rejections
		config.withGoaway,                  // before work for a connection that will close
		cors,                               // preflight requests carry no credentials
		config.withNegotiationLimit,        // 431: later filters negotiate their responses
		config.withDeadline,                // limits the time of all later filters
		config.withReloadCheck,             // 429: authentication and authorization need loaded objects
		config.withWarnings,                // authentication and handlers add Warning headers
		config.withAuthentication,          // 401
		observe.WithTracing,                // needs the user: privileged users continue their own traces
		config.withAudit,                   // records all later filters; reject records the earlier ones
		config.withImpersonation,           // 403: later filters see the impersonated user
		config.withUnknownResource,         // repeats the request with the API set of withAPISetRefresh
		protection.WithLimit,               // 429, before the cost of authorization
		config.withAuthorization,           // 403
		config.withAPISetRefresh,           // reads the newest API set for an authorized request
		config.withStorageVersion,          // 503: the storage version is not registered yet
		observe.WithOperationSpan,          // the span of the operation
		protection.WithBody,                // only bodies of authorized requests are read; limits large ones
	}
	if config.UpdateDocuments != nil {
		filters = append(filters, config.UpdateDocuments) // discovery and OpenAPI include the newest definitions
	}

	// 3. Wrap the routing in them, from the last to the first.
	h := config.Mux
	for i := len(filters) - 1; i >= 0; i-- {
		h = filters[i](h)
	}
	return h, nil
}

// telemetryFilters returns the filters that record requests.
func (c *Config) telemetryFilters() *telemetry.Filters {
	return &telemetry.Filters{Metrics: c.Metrics, Logger: c.Logger, Slow: c.Slow, Traces: c.Traces}
}

// engineFilter returns a filter that passes requests through gin. The paths of the API are data,
// not routes: withRequestInfo and Mux resolve them.
func (c *Config) engineFilter() (func(http.Handler) http.Handler, error) {
	engine, err := serving.NewEngine(c.Logger)
	if err != nil {
		return nil, err
	}
	return func(next http.Handler) http.Handler {
		engine.NoRoute(func(g *gin.Context) {
			g.Status(http.StatusOK) // gin presets 404 for unknown routes
			next.ServeHTTP(g.Writer, g.Request)
			g.Writer.WriteHeaderNow() // gin would add its own body to a 404 without one
		})
		return engine
	}, nil
}
