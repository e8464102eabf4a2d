package upstream

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

	"binnacle/services/apiserver/internal/connections"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/upgrade"
)

// Responder answers a client with an error of the API.
type Responder = proxy.ErrorResponder

// To is where a request is carried to.
type To int

const (
	// Kubelet is a node's kubelet.
	Kubelet To = iota
	// UnverifiedKubelet is one whose certificate is not looked at.
	UnverifiedKubelet
	// Target is a pod, a service's endpoint, or another port of a node.
	Target
)

// whole refuses a place that is none: objects say where things are, in words of whoever
// writes them.
func whole(at *url.URL) error {
	read, err := url.Parse(at.String())
	if err != nil || read.Host != at.Host || read.User != nil {
		return apierrors.NewServiceUnavailable(fmt.Sprintf("error trying to reach service: %q is no address", at.Host))
	}
	return nil
}

func (u *Upstream) transport(to To) *connections.Pool {
	switch to {
	case Kubelet:
		return u.kubelet
	case UnverifiedKubelet:
		return u.unverified
	default:
		return u.target
	}
}

// Proxy carries a request of any method on, and lets it upgrade its connection.
// What links to other paths in an answer is rewritten.
func (u *Upstream) Proxy(w http.ResponseWriter, r *http.Request, to To, at *url.URL, errs Responder) {
	at.RawQuery = r.URL.RawQuery
	request.Begun(r.Context()) // the rest is the target's time
	if err := whole(at); err != nil {
		errs.Error(w, r, err)
		return
	}
	through := http.RoundTripper(u.transport(to))
	if to != Target { // what runs in pods sees what the client sends
		r, through = u.carried(r), u.traces.Transport(through)
	}
	if httpstream.IsUpgradeRequest(r) {
		u.take(w, r, to, at, errs)
		return
	}
	proxy.NewUpgradeAwareHandler(at, u.pages.Bounded(through), true, false, errs).ServeHTTP(w, r.WithContext(withLife(r.Context())))
}

// take carries a request on that takes its connection over.
func (u *Upstream) take(w http.ResponseWriter, r *http.Request, to To, at *url.URL, errs Responder) {
	way := upgrade.Way{At: at, Connections: u.transport(to).Transport(), Within: u.options.UpgradeTimeout, Errors: errs}
	way.Carry(u.ending(w, r), r)
}

// carried is a request that carries its trace on, in the place of the client's. Upgrades
// do not go through a transport.
func (u *Upstream) carried(r *http.Request) *http.Request {
	if u.traces == nil {
		return r
	}
	r = r.Clone(r.Context())
	u.traces.Inject(r.Context(), r.Header)
	return r
}

// Streams are those that a command's client wants.
type Streams struct{ Stdin, Stdout, Stderr, TTY bool }

// Command carries an exec or attach on. Clients of the channel protocol that can
// close a channel are translated, where translate is true; others speak to the
// kubelet themselves.
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

// PortForward carries a port-forward on. Clients that put SPDY into WebSocket
// messages are served where tunnel is true.
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

// upgrade requires that the connection is upgraded.
func (u *Upstream) upgrade(w http.ResponseWriter, r *http.Request, at *url.URL, errs Responder) {
	if !httpstream.IsUpgradeRequest(r) {
		errs.Error(w, r, apierrors.NewBadRequest("Upgrade request required"))
		return
	}
	u.take(w, u.carried(r), Kubelet, at, errs)
}

// ender closes a connection that was taken over, when the request's context
// ends, which nothing else does.
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
