package carry

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
	"binnacle/services/apiserver/internal/answers"
	"binnacle/services/apiserver/internal/connections"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/status"
	"binnacle/services/apiserver/internal/upgrade"
)

// Way leads to one server.
type Way struct {
	// Locate is where a path of the server is now.
	Locate func(ctx context.Context, path string) (*url.URL, error)
	// Connections to it, to which a way adds bounds.
	Connections *connections.Pool
	Breaker     *Breaker
	Pages       *answers.Room
	// Place, if set, gives a place to a request that upgrades its connection, which may last as
	// long as both sides like, until leave is called.
	Place func(*http.Request) (leave func(), err error)
	// FollowRedirects passes redirects of the server on.
	FollowRedirects bool
	// Refused, if set, is told why the server could not be asked.
	Refused func(error)
	// Traces, if set, makes spans of what goes on.
	Traces *tracing.Provider
	Logger *slog.Logger
	// Name is what the log calls the server.
	Name string
}

// Carry carries a request on as its user, with headers more that only this server says.
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
	op := request.From(in.Context())
	ctx, p, err := y.Breaker.enter(in.Context(), request.Principal(in.Context()), op != nil && op.LongRunning())
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
	out.Trailer = nil // which some servers take for headers
	clean(out.Header, more)
	out.Header.Set("Audit-Id", w.Header().Get("Audit-Id"))
	reply := &responder{of: y, passage: p}
	if upgrades { // whose connection is not made by the round tripper
		transport.SetAuthProxyHeaders(out, user.Name, user.UID, user.Groups, user.Extra)
		out.Header.Set("Connection", "Upgrade") // proxies on the way take away what else it names
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

// Unavailable is the text of a refusal that has no better one.
const Unavailable = "service unavailable"

// refuse answers a request that may not be carried on.
func refuse(w http.ResponseWriter, err error) {
	w.Header().Set("Retry-After", "1")
	if errors.Is(err, errCrowded) {
		http.Error(w, "Too many requests, please try again later.", http.StatusTooManyRequests)
		return
	}
	http.Error(w, err.Error(), http.StatusServiceUnavailable)
}

// clean takes away what a request tells of its client to this server alone, and what only
// this server may say. Servers that hand headers on as variables do not tell - and _ apart.
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

// noting notes that there is an answer, or why there is none.
type noting struct {
	*connections.Pool
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

// responder answers for a server that did not.
type responder struct {
	of      *Way
	passage *passage
	why     error // of connections; further on only its text is left
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
