package server

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/libs/serving"
	"binnacle/libs/tracing"
	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/rest/responsewriters"
	"binnacle/services/apiserver/internal/security/audit"
	"binnacle/services/apiserver/internal/security/authn"
	"binnacle/services/apiserver/internal/security/authz"
	"binnacle/services/apiserver/internal/security/flowcontrol"
)

// Config is what the front door needs.
type Config struct {
	Mux           http.Handler
	Responder     responsewriters.Responder
	Authenticator authn.Authenticator
	Authorizer    authz.Authorizer
	Metrics       *Metrics
	// Kinds are what is served; each request sees them as they were when it came.
	Kinds *apiset.Live
	// Newest, if set, is the set as the whole suite knows it, for requests that
	// name what Kinds does not have yet. It waits no longer than it must.
	Newest func(context.Context) *apiset.Set
	// Foreign, if set, knows who else answers.
	Foreign Foreign
	// Reloading, if set, tells that what a request is about is of a history that the store has
	// no more, and what it has now is being loaded.
	Reloading func(*requestinfo.Info) bool
	Logger    *slog.Logger
	// RequestTimeout bounds requests that are not long-running.
	RequestTimeout time.Duration
	// Flow shares the server among its clients, by what Width says that requests are
	// worth. Without it MaxInFlight and MaxMutatingInFlight bound them.
	Flow  *flowcontrol.Controller
	Width func(op *requestinfo.Info, most int) flowcontrol.Width
	// MaxInFlight and MaxMutatingInFlight bound the requests that are worked
	// on at a time; 0 means no bound.
	MaxInFlight, MaxMutatingInFlight int
	// StrictTransportSecurity is the value of the header, if any.
	StrictTransportSecurity []string
	// GoawayChance is the share of HTTP/2 requests whose connection is closed,
	// so that clients spread over replicas.
	GoawayChance float64
	// LargeRequests are the turns in which large requests are worked on.
	LargeRequests serving.LargeRequests
	// Audit, if set, tells what becomes of requests.
	Audit *audit.Trail
	// Held, if set, tells of resources whose writes have to wait, and why; it may wait itself.
	Held func(ctx context.Context, r schema.GroupResource, custom bool) (why error, held bool)
	// Slow is when a request is told of in the log; 0 means half a second.
	Slow time.Duration
	// Traces, if set, makes spans of requests.
	Traces *tracing.Provider
	// AllowedOrigins are patterns of origins that browsers may call from.
	AllowedOrigins []string
}

// Handler builds the chain of filters. A request passes them from the first to
// the last of this list, an answer from the last to the first.
func Handler(c Config) (http.Handler, error) {
	cors, err := c.cors()
	if err != nil {
		return nil, err
	}
	if c.Kinds != nil {
		c.Metrics.keepWhileServed(c.Kinds)
	}
	limit := c.limit
	if c.Flow != nil {
		limit = c.fair
	}
	filters := []func(http.Handler) http.Handler{
		c.resolve,         // all that follow go by what the request does
		c.observe,         // access log and metrics see the answers of all below
		c.securityHeaders, // on every answer, refusals too
		c.goaway,          // before work is spent on a connection that is to close
		cors,              // browsers ask before they send credentials
		c.negotiable,      // 431: answers of all below are negotiated
		c.deadline,        // bounds all that follow
		c.reloading,       // 429: authentication and authorization need loaded objects
		c.warnings,        // authentication and handlers add Warning headers
		c.authenticate,    // 401: who asks
		c.trace,           // the span of the request, which privileged users control
		c.audit,           // tells of all below, and by refuse of those before
		c.impersonate,     // 403: all that follow see whom the client wants to be
		c.settle,          // asks newest what a resource is that is not known here
		limit,             // 429, before authorization spends anything
		c.authorize,       // 403: may they
		c.newest,          // looks, for who may have what settle asks about
		c.hold,            // 503: it is not said yet what would be stored
		c.operation,       // the span of what is done
		c.receive,         // only bodies of authorized requests are read
		c.work,            // large requests take turns
	}
	h := c.Mux
	for i := len(filters) - 1; i >= 0; i-- {
		h = filters[i](h)
	}
	return h, nil
}
