package aggregate

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/apimachinery/pkg/util/proxy"
	"k8s.io/client-go/transport"

	apiregistrationv1 "binnacle/services/apiserver/internal/apis/apiregistration/v1"
	"binnacle/services/apiserver/internal/request"
)

const (
	dialTimeout      = 5 * time.Second
	handshakeTimeout = 5 * time.Second
	idleTimeout      = 90 * time.Second
	maxIdle          = 32
	// A connection that is silent for probeAfter is probed, and closed when it stays
	// silent for probeTimeout.
	probeAfter   = 10 * time.Second
	probeTimeout = 5 * time.Second
	// maxHeaders of an answer, in bytes.
	maxHeaders = 1 << 20
)

// remote is a server that answers for a group version.
type remote struct {
	all  *Aggregator
	key  string // of what it is made of
	name string
	spec apiregistrationv1.APIServiceSpec
	port int32

	// carry has connections whose server was verified, ask others: whether a server is
	// there does not hang on its certificate.
	carry, ask *http.Transport
	broken     error // why nothing can be carried on

	// told is the condition that the APIService shows, found what was found here.
	told, found atomic.Pointer[apiregistrationv1.APIServiceCondition]
	known       atomic.Pointer[description]

	mu      sync.Mutex // a leaf
	next    time.Time  // when it is to be checked
	last    time.Time  // when it was
	retry   time.Duration
	looking bool
	again   bool
}

func newRemote(a *Aggregator, key string, s *apiregistrationv1.APIService) *remote {
	r := &remote{all: a, key: key, name: s.Name, spec: s.Spec, port: 443}
	if p := s.Spec.Service.Port; p != nil {
		r.port = *p
	}
	security := &tls.Config{
		MinVersion: tls.VersionTLS12, ServerName: s.Spec.Service.Name + "." + s.Spec.Service.Namespace + ".svc",
		InsecureSkipVerify: s.Spec.InsecureSkipTLSVerify, //nolint:gosec // as its administrator wants
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			if c := a.Certificate(); c != nil {
				return c, nil
			}
			return &tls.Certificate{}, nil
		},
	}
	if len(s.Spec.CABundle) > 0 {
		security.RootCAs = x509.NewCertPool()
		if !security.RootCAs.AppendCertsFromPEM(s.Spec.CABundle) {
			r.broken = errors.New("unable to load root certificates: unable to parse bytes as PEM block")
		}
	}
	r.carry = connections(security)
	unverified := security.Clone()
	unverified.InsecureSkipVerify = true
	r.ask = connections(unverified)
	r.known.Store(&description{stale: true})
	return r
}

func connections(security *tls.Config) *http.Transport {
	return &http.Transport{
		DialContext:     (&net.Dialer{Timeout: dialTimeout}).DialContext,
		TLSClientConfig: security, TLSHandshakeTimeout: handshakeTimeout, MaxIdleConnsPerHost: maxIdle, IdleConnTimeout: idleTimeout,
		ForceAttemptHTTP2: true, DisableCompression: true, MaxResponseHeaderBytes: maxHeaders,
		HTTP2: &http.HTTP2Config{SendPingTimeout: probeAfter, PingTimeout: probeTimeout},
	}
}

// close lets go of connections that nobody uses.
func (r *remote) close() {
	r.carry.CloseIdleConnections()
	r.ask.CloseIdleConnections()
}

// available goes by what was found here, and by what others found before that.
func (r *remote) available() bool {
	c := r.found.Load()
	if c == nil {
		c = r.told.Load()
	}
	return c != nil && c.Status == apiregistrationv1.ConditionTrue
}

// locate is where a path of the server is now.
func (r *remote) locate(ctx context.Context, path string) (*url.URL, error) {
	s := r.spec.Service
	host, err := r.all.Resolve(ctx, s.Namespace, s.Name, r.port)
	if err != nil {
		return nil, err
	}
	return &url.URL{Scheme: "https", Host: host, Path: path}, nil
}

// ServeHTTP carries a request on as its user.
func (r *remote) ServeHTTP(w http.ResponseWriter, in *http.Request) {
	user := request.UserFrom(in.Context())
	switch {
	case !r.available():
		http.Error(w, "service unavailable", http.StatusServiceUnavailable)
		return
	case r.broken != nil:
		http.Error(w, r.broken.Error(), http.StatusInternalServerError)
		return
	case user == nil:
		http.Error(w, "missing user", http.StatusInternalServerError)
		return
	}
	at, err := r.locate(in.Context(), in.URL.Path)
	if err != nil {
		r.all.Logger.Warn("the server of an API cannot be found", "apiservice", r.name, "error", err)
		http.Error(w, "service unavailable", http.StatusServiceUnavailable)
		return
	}
	at.RawQuery = in.URL.Query().Encode()
	out := in.Clone(in.Context())
	out.URL, out.Host = at, at.Host
	clean(out.Header)
	out.Header.Set("Audit-Id", w.Header().Get("Audit-Id"))
	upgrade := httpstream.IsUpgradeRequest(in)
	if upgrade { // whose connection is not made by the round tripper
		transport.SetAuthProxyHeaders(out, user.Name, user.UID, user.Groups, user.Extra)
	}
	carry := transport.NewAuthProxyRoundTripper(user.Name, user.UID, user.Groups, user.Extra, &single{r.carry})
	h := proxy.NewUpgradeAwareHandler(at, carry, true, upgrade, responder{})
	h.RejectForwardingRedirects = !r.all.FollowRedirects
	h.ServeHTTP(&ender{w, in.Context()}, out)
}

// clean takes away what a request tells of its client to this server alone.
func clean(h http.Header) {
	h.Del("Authorization")
	for name := range h {
		if strings.HasPrefix(name, "Impersonate-") || strings.HasPrefix(name, "X-Remote-") {
			delete(h, name)
		}
	}
}

// single keeps headers that this server sets on every answer from coming twice.
type single struct{ *http.Transport }

// RoundTrip implements http.RoundTripper.
func (s *single) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := s.Transport.RoundTrip(r)
	if err == nil {
		resp.Header.Del("Audit-Id")
	}
	return resp, err
}

// WrappedRoundTripper lets an upgrade find how to connect.
func (s *single) WrappedRoundTripper() http.RoundTripper { return s.Transport }

// responder answers for a server that did not.
type responder struct{}

// Error implements proxy.ErrorResponder.
func (responder) Error(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(r.Context().Err(), context.DeadlineExceeded) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(http.StatusGatewayTimeout)
		_, _ = fmt.Fprintf(w, `{"metadata":{},"status":%q,"message":"Timeout: request did not complete within the allotted timeout","reason":%q,"details":{},"code":504}`,
			metav1.StatusFailure, metav1.StatusReasonTimeout) // the client may be gone
		return
	}
	http.Error(w, err.Error(), http.StatusServiceUnavailable)
}
