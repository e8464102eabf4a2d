package reverseproxy

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/apimachinery/pkg/util/proxy"
	"k8s.io/client-go/transport"

	"binnacle/libs/tracing"
	"binnacle/services/apiserver/internal/proxy/clientcerts"
	"binnacle/services/apiserver/internal/proxy/responselimit"
	"binnacle/services/apiserver/internal/proxy/upgrade"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/status"
)

// Way is the reverse proxy for one server.
type Way struct {
	// Locate returns the current URL of a path of the server.
	Locate func(ctx context.Context, path string) (*url.URL, error)
	// Connections is the connection pool. Way adds bounds to it.
	Connections *clientcerts.Pool
	Breaker     *Breaker
	Pages       *responselimit.Room
	// Place, if set, acquires a slot for a request that upgrades its connection. Such a request may
	// last as long as both sides like. leave releases the slot.
	Place func(*http.Request) (leave func(), err error)
	// LongRunning reports whether a request may last as long as both sides like.
	LongRunning func(context.Context) bool
	// FollowRedirects passes redirects of the server to the client.
	FollowRedirects bool
	// Refused, if set, is called with the error of a failed request.
	Refused func(error)
	// Traces, if set, creates spans for proxied requests.
	Traces *tracing.Provider
	Logger *slog.Logger
	// Name identifies the server in the log.
	Name string
}

// Carry proxies a request as its user. more holds additional headers that only this server may set.
func (y *Way) Carry(w http.ResponseWriter, in *http.Request, more http.Header) {
	user := request.UserFrom(in.Context())
	if user == nil {
		http.Error(w, "missing user", http.StatusInternalServerError)
		return
	}
	upgrades := httpstream.IsUpgradeRequest(in)
	if upgrades && y.Place != nil {
		leave, err := y.Place(in)
		if err != nil {
			refuse(w, errCrowded)
			return
		}
		defer leave()
	}
	ctx, p, err := y.Breaker.enter(in.Context(), request.Principal(in.Context()), y.LongRunning(in.Context()))
	if err != nil {
		refuse(w, err)
		return
	}
	defer p.leave()
	at, err := y.Locate(ctx, in.URL.Path)
	if err != nil {
		y.Logger.Warn("a server that answers for an API cannot be found", "server", y.Name, "error", err)
		http.Error(w, Unavailable, http.StatusServiceUnavailable)
		return
	}
	at.RawQuery = in.URL.Query().Encode()
	out := in.Clone(ctx)
	out.URL, out.Host = at, at.Host
	out.Trailer = nil // some servers take trailers for headers
	clean(out.Header, more)
	out.Header.Set("Audit-Id", w.Header().Get("Audit-Id"))
	reply := &responder{of: y, passage: p}
	if upgrades { // the round tripper does not open such connections
		transport.SetAuthProxyHeaders(out, user.Name, user.UID, user.Groups, user.Extra)
		out.Header.Set("Connection", "Upgrade") // proxies on the way remove other options
		way := upgrade.Way{At: at, Connections: y.Connections.Transport(), Within: upgrade.Patience, Errors: reply, Life: request.Life(in.Context())}
		way.Answered = func(agreed bool) {
			if p.long = p.long || agreed; agreed {
				request.Begun(ctx) // the rest is the client's time
			}
			p.answered()
		}
		way.Carry(w, out)
		return
	}
	carry := transport.NewAuthProxyRoundTripper(user.Name, user.UID, user.Groups, user.Extra, y.Traces.Transport(y.Pages.Bounded(&noting{y.Connections, reply})))
	h := proxy.NewUpgradeAwareHandler(at, carry, true, false, reply)
	h.RejectForwardingRedirects = !y.FollowRedirects
	h.ServeHTTP(w, out)
}

// Unavailable is the default text of a rejection.
const Unavailable = "service unavailable"

// refuse responds to a request that may not be proxied.
func refuse(w http.ResponseWriter, err error) {
	w.Header().Set("Retry-After", "1")
	if errors.Is(err, errCrowded) {
		http.Error(w, "Too many requests, please try again later.", http.StatusTooManyRequests)
		return
	}
	http.Error(w, err.Error(), http.StatusServiceUnavailable)
}

// clean removes headers that are meant only for this server, and headers that only this server may
// set. Servers that pass headers as variables do not distinguish - and _.
func clean(h, more http.Header) {
	plain := func(name string) string { return strings.ReplaceAll(strings.ToLower(name), "_", "-") }
	own := map[string]bool{"authorization": true}
	for name := range more {
		own[plain(name)] = true
	}
	for name := range h {
		if p := plain(name); own[p] || strings.HasPrefix(p, "impersonate-") || strings.HasPrefix(p, "x-remote-") {
			delete(h, name)
		}
	}
	for name, values := range more {
		h[http.CanonicalHeaderKey(name)] = values
	}
}

// noting records the response or the error of a request.
type noting struct {
	*clientcerts.Pool
	reply *responder
}

// RoundTrip implements http.RoundTripper.
func (s *noting) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := s.Pool.RoundTrip(r)
	if err != nil {
		s.reply.why = err
		return resp, err
	}
	s.reply.passage.answered()
	if s.reply.passage.long {
		request.Begun(r.Context()) // the rest is the client's time
	}
	return resp, nil
}

// responder responds when the server did not.
type responder struct {
	of      *Way
	passage *passage
	why     error // of the connection; later only its text is left
}

// Error implements proxy.ErrorResponder.
func (p *responder) Error(w http.ResponseWriter, r *http.Request, err error) {
	var open *openError
	switch {
	case errors.As(context.Cause(r.Context()), &open):
		refuse(w, open)
	case errors.Is(r.Context().Err(), context.DeadlineExceeded):
		status.WriteTimeout(w)
	default:
		if p.of.Refused != nil {
			p.of.Refused(cmp.Or(p.why, err))
		}
		if r.Context().Err() == nil {
			p.passage.failed(err)
		}
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	}
}
