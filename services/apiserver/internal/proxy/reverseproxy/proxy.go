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

	"binnacle/libs/limit"
	"binnacle/libs/tracing"
	"binnacle/services/apiserver/internal/proxy/clientcerts"
	"binnacle/services/apiserver/internal/proxy/responselimit"
	"binnacle/services/apiserver/internal/proxy/upgrade"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/status"
)

// Proxy is the reverse proxy for one server.
type Proxy struct {
	// Locate returns the URL of a path on an address of the server that is reachable now.
	Locate func(ctx context.Context, path string) (*url.URL, error)
	// Connections is the connection pool.
	Connections *clientcerts.Pool
	// Breaker bounds the requests in progress, and rejects requests while the server does not
	// respond.
	Breaker *Breaker
	// Pages bounds the pages whose links are rewritten.
	Pages *responselimit.PageLimiter
	// AcquireSlot, if set, acquires a slot for a request that upgrades its connection. Such a
	// request has no timeout. release releases the slot.
	AcquireSlot func(*http.Request) (release func(), err error)
	// LongRunning reports whether a request is a watch or another long-running request, which has
	// no timeout.
	LongRunning func(context.Context) bool
	// FollowRedirects passes redirects of the server to the client.
	FollowRedirects bool
	// OnError, if set, is called with the error of a failed request.
	OnError func(error)
	// Traces, if set, creates spans for proxied requests.
	Traces *tracing.Provider
	Logger *slog.Logger
	// Name identifies the server in the log.
	Name string
}

// Serve proxies a request as its user. serverHeaders holds additional headers that only this server
// may set.
func (p *Proxy) Serve(w http.ResponseWriter, incoming *http.Request, serverHeaders http.Header) {
	user := request.UserFrom(incoming.Context())
	if user == nil {
		http.Error(w, "missing user", http.StatusInternalServerError)
		return
	}
	upgrades := httpstream.IsUpgradeRequest(incoming)
	if upgrades && p.AcquireSlot != nil {
		release, err := p.AcquireSlot(incoming)
		if err != nil {
			reject(w, errTooManyRequests)
			return
		}
		defer release()
	}
	ctx, pending, err := p.Breaker.startCall(incoming.Context(),
		request.Principal(incoming.Context()), p.LongRunning(incoming.Context()))
	if err != nil {
		reject(w, err)
		return
	}
	defer pending.finish()
	location, err := p.Locate(ctx, incoming.URL.Path)
	if err != nil {
		p.Logger.Warn("failed to locate the server of an API", "server", p.Name, "error", err)
		http.Error(w, Unavailable, http.StatusServiceUnavailable)
		return
	}
	location.RawQuery = incoming.URL.Query().Encode()
	out := incoming.Clone(ctx)
	out.URL = location
	out.Host = location.Host
	out.Trailer = nil // some servers read trailers as headers
	setHeaders(out.Header, serverHeaders)
	out.Header.Set("Audit-Id", w.Header().Get("Audit-Id"))
	responder := &errorResponder{proxy: p, call: pending}
	if upgrades {
		p.serveUpgrade(w, out, user, request.LifetimeOf(incoming.Context()), responder)
	} else {
		p.serveHTTP(w, out, user, responder)
	}
}

// serveUpgrade proxies a request that upgrades its connection. The upgraded connection ends with
// lifetime.
func (p *Proxy) serveUpgrade(
	w http.ResponseWriter,
	out *http.Request,
	user *request.User,
	lifetime context.Context,
	responder *errorResponder,
) {
	ctx, pending := out.Context(), responder.call
	transport.SetAuthProxyHeaders(out, user.Name, user.UID, user.Groups, user.Extra)
	out.Header.Set("Connection", "Upgrade") // proxies on the way remove other options
	upgrader := upgrade.Proxy{
		URL:       out.URL,
		Transport: p.Connections.Transport(),
		Timeout:   upgrade.DefaultTimeout,
		Errors:    responder,
		Lifetime:  lifetime,
		OnResponse: func(upgraded bool) {
			pending.longRunning = pending.longRunning || upgraded
			if upgraded {
				request.Started(ctx) // the duration of an upgraded connection depends on the client
			}
			pending.recordResponse()
		},
	}
	upgrader.Serve(w, out)
}

// serveHTTP proxies a request that does not upgrade its connection.
func (p *Proxy) serveHTTP(w http.ResponseWriter, out *http.Request, user *request.User, responder *errorResponder) {
	limited := p.Pages.Transport(&recordingTransport{p.Connections, responder})
	authenticated := transport.NewAuthProxyRoundTripper(user.Name, user.UID, user.Groups, user.Extra, p.Traces.Transport(limited))
	const (
		wrapTransport   = true
		upgradeRequired = false
	)
	handler := proxy.NewUpgradeAwareHandler(out.URL, authenticated, wrapTransport, upgradeRequired, responder)
	handler.RejectForwardingRedirects = !p.FollowRedirects
	handler.ServeHTTP(w, out)
}

// Unavailable is the default text of a rejection.
const Unavailable = "service unavailable"

// reject responds to a request that is not proxied: with 429 for errTooManyRequests, otherwise 503.
func reject(w http.ResponseWriter, err error) {
	w.Header().Set("Retry-After", "1")
	if errors.Is(err, errTooManyRequests) {
		http.Error(w, "Too many requests, please try again later.", http.StatusTooManyRequests)
		return
	}
	http.Error(w, err.Error(), http.StatusServiceUnavailable)
}

// setHeaders sets serverHeaders, and removes headers that are meant only for this server or that
// only this server may set. Servers that pass headers as variables do not distinguish - and _.
func setHeaders(header, serverHeaders http.Header) {
	normalize := func(name string) string { return strings.ReplaceAll(strings.ToLower(name), "_", "-") }
	serverOnly := map[string]bool{"authorization": true}
	for name := range serverHeaders {
		serverOnly[normalize(name)] = true
	}
	for name := range header {
		normalized := normalize(name)
		if serverOnly[normalized] || strings.HasPrefix(normalized, "impersonate-") || strings.HasPrefix(normalized, "x-remote-") {
			delete(header, name)
		}
	}
	for name, values := range serverHeaders {
		header[http.CanonicalHeaderKey(name)] = values
	}
}

// recordingTransport records the response or the error of a request.
type recordingTransport struct {
	*clientcerts.Pool
	responder *errorResponder
}

// RoundTrip implements http.RoundTripper.
func (t *recordingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.Pool.RoundTrip(r)
	if err != nil {
		t.responder.connectionErr = err
		return resp, err
	}
	t.responder.call.recordResponse()
	if t.responder.call.longRunning {
		request.Started(r.Context()) // the duration of a long response depends on the client
	}
	return resp, nil
}

// errorResponder responds to the client when the server did not respond.
type errorResponder struct {
	proxy *Proxy
	call  *call
	// connectionErr is the error of the connection. The proxy passes only its text to Error.
	connectionErr error
}

// Error implements proxy.ErrorResponder.
func (e *errorResponder) Error(w http.ResponseWriter, r *http.Request, err error) {
	var open *limit.OpenError
	switch {
	case errors.As(context.Cause(r.Context()), &open):
		reject(w, open)
	case errors.Is(r.Context().Err(), context.DeadlineExceeded):
		status.WriteTimeout(w)
	default:
		if e.proxy.OnError != nil {
			e.proxy.OnError(cmp.Or(e.connectionErr, err))
		}
		if r.Context().Err() == nil {
			e.call.breaker.Failed(err)
		}
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	}
}
