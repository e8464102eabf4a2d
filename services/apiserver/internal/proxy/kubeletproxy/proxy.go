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

// To is the kind of a request's target.
type To int

const (
	// Kubelet is a node's kubelet.
	Kubelet To = iota
	// UnverifiedKubelet is a kubelet whose certificate is not verified.
	UnverifiedKubelet
	// Target is a pod, a service's endpoint, or another port of a node.
	Target
)

// whole rejects an invalid location. Objects contain the locations, so they are user input.
func whole(at *url.URL) error {
	read, err := url.Parse(at.String())
	if err != nil || read.Host != at.Host || read.User != nil {
		return apierrors.NewServiceUnavailable(fmt.Sprintf("error trying to reach service: %q is no address", at.Host))
	}
	return nil
}

func (u *Upstream) transport(to To) *clientcerts.Pool {
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
func (u *Upstream) Proxy(w http.ResponseWriter, r *http.Request, to To, at *url.URL, errs Responder) {
	at.RawQuery = r.URL.RawQuery
	request.Begun(r.Context()) // the rest is the target's time
	if err := whole(at); err != nil {
		errs.Error(w, r, err)
		return
	}
	through := http.RoundTripper(u.transport(to))
	if to != Target { // workloads in pods receive the client's own headers
		r, through = u.carried(r), u.traces.Transport(through)
	}
	if httpstream.IsUpgradeRequest(r) {
		u.take(w, r, to, at, errs)
		return
	}
	proxy.NewUpgradeAwareHandler(at, u.pages.Bounded(through), true, false, errs).ServeHTTP(w, r.WithContext(withLife(r.Context())))
}

// take proxies a request that upgrades its connection.
func (u *Upstream) take(w http.ResponseWriter, r *http.Request, to To, at *url.URL, errs Responder) {
	way := upgrade.Way{At: at, Connections: u.transport(to).Transport(), Within: u.options.UpgradeTimeout, Errors: errs}
	way.Carry(u.ending(w, r), r)
}

// carried returns a request with the trace headers of this server in place of the client's.
// Upgrades do not use a transport.
func (u *Upstream) carried(r *http.Request) *http.Request {
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
	request.Begun(r.Context()) // the rest is the kubelet's time
	if err := whole(at); err != nil {
		errs.Error(w, r, err)
		return
	}
	if translate && wsstream.IsWebSocketRequestWithStreamCloseProtocol(r) {
		u.translate(u.ending(w, r), r, at, s)
		return
	}
	u.upgrade(w, r, at, errs)
}

// PortForward proxies a port-forward. If tunnel is true, clients that send SPDY in WebSocket
// messages are tunneled.
func (u *Upstream) PortForward(w http.ResponseWriter, r *http.Request, at *url.URL, tunnel bool, errs Responder) {
	request.Begun(r.Context()) // the rest is the kubelet's time
	if err := whole(at); err != nil {
		errs.Error(w, r, err)
		return
	}
	if tunnel && wsstream.IsWebSocketRequestWithTunnelingProtocol(r) {
		u.tunnel(u.ending(w, r), r, at, errs)
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
	u.take(w, u.carried(r), Kubelet, at, errs)
}

// ender closes a hijacked connection when the request's context ends. net/http does not do that.
type ender struct {
	http.ResponseWriter
	ctx  context.Context
	rate int64
}

func (u *Upstream) ending(w http.ResponseWriter, r *http.Request) *ender {
	return &ender{w, r.Context(), u.options.MaxBytesPerSecond}
}

// Hijack implements http.Hijacker.
func (e *ender) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(e.ResponseWriter).Hijack()
	if err == nil {
		closing := conn
		context.AfterFunc(e.ctx, func() { _ = closing.Close() })
		conn, rw = limit(conn, rw, e.rate)
	}
	return conn, rw, err
}

// Unwrap serves http.ResponseController.
func (e *ender) Unwrap() http.ResponseWriter { return e.ResponseWriter }
