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
func checkLocation(at *url.URL) error {
	read, err := url.Parse(at.String())
	if err != nil || read.Host != at.Host || read.User != nil {
		return apierrors.NewServiceUnavailable(fmt.Sprintf("error trying to reach service: %q is not an address", at.Host))
	}
	return nil
}

// transport returns the connections to a kind of target.
func (u *Upstream) transport(to TargetKind) *clientcerts.Pool {
	switch to {
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
func (u *Upstream) Proxy(w http.ResponseWriter, r *http.Request, to TargetKind, at *url.URL, errs Responder) {
	at.RawQuery = r.URL.RawQuery
	request.Started(r.Context()) // the rest is the target's time
	if err := checkLocation(at); err != nil {
		errs.Error(w, r, err)
		return
	}
	transport := http.RoundTripper(u.transport(to))
	if to != Target { // workloads in pods receive the client's own headers
		r, transport = u.withTrace(r), u.traces.Transport(transport)
	}
	if httpstream.IsUpgradeRequest(r) {
		u.proxyUpgrade(w, r, to, at, errs)
		return
	}
	proxy.NewUpgradeAwareHandler(at, u.pages.Transport(transport), true, false, errs).ServeHTTP(w, r)
}

// proxyUpgrade proxies a request that upgrades its connection.
func (u *Upstream) proxyUpgrade(w http.ResponseWriter, r *http.Request, to TargetKind, at *url.URL, errs Responder) {
	p := upgrade.Proxy{URL: at, Transport: u.transport(to).Transport(), Timeout: u.options.UpgradeTimeout, Errors: errs}
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

// Command proxies an exec or attach. If translate is true, clients of the channel protocol that can
// close a channel are translated. Other clients speak to the kubelet directly.
func (u *Upstream) Command(w http.ResponseWriter, r *http.Request, at *url.URL, s Streams, translate bool, errs Responder) {
	request.Started(r.Context()) // the rest is the kubelet's time
	if err := checkLocation(at); err != nil {
		errs.Error(w, r, err)
		return
	}
	if translate && wsstream.IsWebSocketRequestWithStreamCloseProtocol(r) {
		client := u.closeWithRequest(w, r)
		client.limitFrames = true
		u.translate(client, r, at, s)
		return
	}
	u.upgrade(w, r, at, errs)
}

// PortForward proxies a port-forward. If tunnel is true, clients that send SPDY in WebSocket
// messages are tunneled.
func (u *Upstream) PortForward(w http.ResponseWriter, r *http.Request, at *url.URL, tunnel bool, errs Responder) {
	request.Started(r.Context()) // the rest is the kubelet's time
	if err := checkLocation(at); err != nil {
		errs.Error(w, r, err)
		return
	}
	if tunnel && wsstream.IsWebSocketRequestWithTunnelingProtocol(r) {
		u.tunnel(u.closeWithRequest(w, r), r, at, errs)
		return
	}
	u.upgrade(w, r, at, errs)
}

// upgrade proxies a request that must upgrade its connection.
func (u *Upstream) upgrade(w http.ResponseWriter, r *http.Request, at *url.URL, errs Responder) {
	if !httpstream.IsUpgradeRequest(r) {
		errs.Error(w, r, apierrors.NewBadRequest("Upgrade request required"))
		return
	}
	u.proxyUpgrade(w, u.withTrace(r), Kubelet, at, errs)
}

// closingWriter closes a hijacked connection when the request's context ends. net/http does not do
// that. It also limits the rate and, if limitFrames is set, the WebSocket frames of the connection.
type closingWriter struct {
	http.ResponseWriter
	ctx         context.Context
	rate        int64
	limitFrames bool
}

func (u *Upstream) closeWithRequest(w http.ResponseWriter, r *http.Request) *closingWriter {
	return &closingWriter{ResponseWriter: w, ctx: r.Context(), rate: u.options.MaxBytesPerSecond}
}

// Hijack implements http.Hijacker.
func (e *closingWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(e.ResponseWriter).Hijack()
	if err == nil {
		closing := conn
		context.AfterFunc(e.ctx, func() { _ = closing.Close() })
		conn, rw = limit(conn, rw, e.rate)
		if e.limitFrames {
			conn, rw = limitFrames(conn, rw)
		}
	}
	return conn, rw, err
}

// Unwrap serves http.ResponseController.
func (e *closingWriter) Unwrap() http.ResponseWriter { return e.ResponseWriter }
