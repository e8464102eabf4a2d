package kubeletproxy

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/apimachinery/pkg/util/httpstream/wsstream"
	"k8s.io/apimachinery/pkg/util/proxy"

	"binnacle/services/apiserver/internal/proxy/clientcerts"
	"binnacle/services/apiserver/internal/proxy/upgrade"
	"binnacle/services/apiserver/internal/request"
)

// Responder responds to a client with an API error.
type Responder = proxy.ErrorResponder

// TargetKind is the kind of a request's target.
type TargetKind int

const (
	// Kubelet is a node's kubelet.
	Kubelet TargetKind = iota
	// UnverifiedKubelet is a kubelet whose certificate is not verified.
	UnverifiedKubelet
	// Target is a pod, a service's endpoint, or another port of a node.
	Target
)

// checkLocation rejects an invalid location. Objects contain the locations, so they are user input.
func checkLocation(location *url.URL) error {
	parsed, err := url.Parse(location.String())
	if err != nil || parsed.Host != location.Host || parsed.User != nil {
		return apierrors.NewServiceUnavailable(fmt.Sprintf("error trying to reach service: %q is not an address", location.Host))
	}
	return nil
}

// poolFor returns the connection pool for a kind of target.
func (u *Upstream) poolFor(kind TargetKind) *clientcerts.Pool {
	switch kind {
	case Kubelet:
		return u.kubelet
	case UnverifiedKubelet:
		return u.unverified
	default:
		return u.target
	}
}

// Proxy proxies a request of any method, including upgrades. It rewrites links to other paths in
// the response.
func (u *Upstream) Proxy(w http.ResponseWriter, r *http.Request, kind TargetKind, location *url.URL, errs Responder) {
	location.RawQuery = r.URL.RawQuery
	request.Started(r.Context()) // the rest is the target's time
	if err := checkLocation(location); err != nil {
		errs.Error(w, r, err)
		return
	}
	transport := http.RoundTripper(u.poolFor(kind))
	if kind != Target { // workloads in pods receive the client's own headers
		r = u.withTrace(r)
		transport = u.traces.Transport(transport)
	}
	if httpstream.IsUpgradeRequest(r) {
		u.proxyUpgrade(w, r, kind, location, errs)
		return
	}
	const (
		wrapTransport   = true
		upgradeRequired = false
	)
	proxy.NewUpgradeAwareHandler(location, u.pages.Transport(transport), wrapTransport, upgradeRequired, errs).ServeHTTP(w, r)
}

// proxyUpgrade proxies a request that upgrades its connection.
func (u *Upstream) proxyUpgrade(w http.ResponseWriter, r *http.Request, kind TargetKind, location *url.URL, errs Responder) {
	p := upgrade.Proxy{URL: location, Transport: u.poolFor(kind).Transport(), Timeout: u.options.UpgradeTimeout, Errors: errs}
	p.Serve(u.closeWithRequest(w, r), r)
}

// withTrace returns a request with the trace headers of this server in place of the client's.
// Upgrades do not use a transport.
func (u *Upstream) withTrace(r *http.Request) *http.Request {
	if u.traces == nil {
		return r
	}
	r = r.Clone(r.Context())
	u.traces.Inject(r.Context(), r.Header)
	return r
}

// Streams selects the streams of a command.
type Streams struct{ Stdin, Stdout, Stderr, TTY bool }

// Command proxies an exec or attach. If translate is true, the channels of WebSocket clients
// that speak v5.channel.k8s.io become SPDY streams. Other clients speak to the kubelet directly.
func (u *Upstream) Command(w http.ResponseWriter, r *http.Request, location *url.URL, s Streams, translate bool, errs Responder) {
	request.Started(r.Context()) // the rest is the kubelet's time
	if err := checkLocation(location); err != nil {
		errs.Error(w, r, err)
		return
	}
	if translate && wsstream.IsWebSocketRequestWithStreamCloseProtocol(r) {
		client := u.closeWithRequest(w, r)
		client.limitFrames = true
		u.serveTranslated(client, r, location, s)
		return
	}
	u.requireUpgrade(w, r, location, errs)
}

// PortForward proxies a port-forward. If tunnel is true, SPDY is extracted from the messages of
// WebSocket clients.
func (u *Upstream) PortForward(w http.ResponseWriter, r *http.Request, location *url.URL, tunnel bool, errs Responder) {
	request.Started(r.Context()) // the rest is the kubelet's time
	if err := checkLocation(location); err != nil {
		errs.Error(w, r, err)
		return
	}
	if tunnel && wsstream.IsWebSocketRequestWithTunnelingProtocol(r) {
		u.serveTunnel(u.closeWithRequest(w, r), r, location, errs)
		return
	}
	u.requireUpgrade(w, r, location, errs)
}

// requireUpgrade proxies a request to a kubelet that must upgrade its connection.
func (u *Upstream) requireUpgrade(w http.ResponseWriter, r *http.Request, location *url.URL, errs Responder) {
	if !httpstream.IsUpgradeRequest(r) {
		errs.Error(w, r, apierrors.NewBadRequest("Upgrade request required"))
		return
	}
	u.proxyUpgrade(w, u.withTrace(r), Kubelet, location, errs)
}

// closingWriter closes a hijacked connection when the request's context ends. net/http does not do
// that. It also limits the rate and, if limitFrames is set, the WebSocket frames of the connection.
type closingWriter struct {
	http.ResponseWriter
	ctx         context.Context
	rate        int64 // bytes per second in each direction; 0 means no limit
	limitFrames bool
}

// closeWithRequest returns a writer whose hijacked connection ends with the request.
func (u *Upstream) closeWithRequest(w http.ResponseWriter, r *http.Request) *closingWriter {
	return &closingWriter{ResponseWriter: w, ctx: r.Context(), rate: u.options.MaxBytesPerSecond}
}

// Hijack implements http.Hijacker.
func (w *closingWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err == nil {
		hijacked := conn
		context.AfterFunc(w.ctx, func() { _ = hijacked.Close() })
		conn, rw = limitRate(conn, rw, w.rate)
		if w.limitFrames {
			conn, rw = limitFrames(conn, rw)
		}
	}
	return conn, rw, err
}

// Unwrap serves http.ResponseController.
func (w *closingWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
