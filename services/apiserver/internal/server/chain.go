package server

import (
	"log/slog"
	"net/http"
	"time"

	"binnacle/services/apiserver/internal/authn"
	"binnacle/services/apiserver/internal/authz"
	"binnacle/services/apiserver/internal/endpoints"
	"binnacle/services/apiserver/internal/request"
)

// Config is what the front door needs.
type Config struct {
	Mux           http.Handler
	Responder     endpoints.Responder
	Authenticator authn.Authenticator
	Authorizer    authz.Authorizer
	Metrics       *Metrics
	// Known tells whether a resource request names something that is served.
	Known  func(*request.Info) bool
	Logger *slog.Logger
	// RequestTimeout bounds requests that are not long-running.
	RequestTimeout time.Duration
	// MaxInFlight and MaxMutatingInFlight bound the requests that are worked
	// on at a time; 0 means no bound.
	MaxInFlight, MaxMutatingInFlight int
	// StrictTransportSecurity is the value of the header, if any.
	StrictTransportSecurity []string
	// GoawayChance is the share of HTTP/2 requests whose connection is closed,
	// so that clients spread over replicas.
	GoawayChance float64
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
	filters := []func(http.Handler) http.Handler{
		c.requestInfo,     // all that follow want to know what is asked
		c.observe,         // access log and metrics see the answers of all below
		c.securityHeaders, // on every answer, refusals too
		c.goaway,          // before work is spent on a connection that is to close
		cors,              // browsers ask before they send credentials
		c.deadline,        // bounds all that follow
		c.authenticate,    // 401: who asks
		c.impersonate,     // 403: all that follow see whom the client wants to be
		c.limit,           // 429, before authorization spends anything
		c.authorize,       // 403: may they
		c.warnings,        // handlers add to the answer's warnings
	}
	h := c.Mux
	for i := len(filters) - 1; i >= 0; i-- {
		h = filters[i](h)
	}
	return h, nil
}
