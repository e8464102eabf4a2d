package aggregation

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"binnacle/libs/api"
	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/proxy/clientcerts"
	"binnacle/services/apiserver/internal/proxy/reverseproxy"
	apiregistrationv1 "binnacle/services/apiserver/internal/registry/apis/apiregistration/v1"
)

// remote is a server that serves a group version.
type remote struct {
	aggregator *Aggregator
	key        string // the key of its registration
	name       string
	spec       apiregistrationv1.APIServiceSpec
	port       int32

	// connections holds connections to a server whose certificate was verified. unverified holds those
	// for checks, because the availability of a server does not depend on its certificate.
	connections, unverified *clientcerts.Pool
	proxyErr                error // why requests cannot be proxied
	proxy                   *reverseproxy.Proxy
	workCtx                 context.Context // context of work apart from requests
	endWork                 context.CancelFunc

	// storedCondition is the condition Available in the APIService. lastCheck is the result of the
	// last check of this process.
	storedCondition, lastCheck atomic.Pointer[apiregistrationv1.APIServiceCondition]
	description                atomic.Pointer[description]
	specs                      specs

	mu          sync.Mutex // leaf lock
	nextCheckAt time.Time
	lastCheckAt time.Time
	retryDelay  time.Duration
	checking    bool
	checkSoon   bool // a check was requested
	checkAgain  bool // a check was requested during the running one
}

// newRemote returns the server of an APIService. It does not connect yet.
func newRemote(a *Aggregator, key string, s *apiregistrationv1.APIService) *remote {
	r := &remote{aggregator: a, key: key, name: s.Name, spec: s.Spec, port: 443}
	if p := s.Spec.Service.Port; p != nil {
		r.port = *p
	}
	security := &tls.Config{
		MinVersion: tls.VersionTLS12, ServerName: s.Spec.Service.Name + "." + s.Spec.Service.Namespace + ".svc",
		InsecureSkipVerify: s.Spec.InsecureSkipTLSVerify, //nolint:gosec // as its administrator wants
	}
	if len(s.Spec.CABundle) > 0 {
		security.RootCAs = x509.NewCertPool()
		if !security.RootCAs.AppendCertsFromPEM(s.Spec.CABundle) {
			r.proxyErr = errors.New("unable to load root certificates: unable to parse bytes as PEM block")
		}
	}
	r.connections = reverseproxy.Connections(a.dial, security, a.Certificate)
	unverified := security.Clone()
	unverified.InsecureSkipVerify = true
	r.unverified = reverseproxy.Connections(a.dial, unverified, a.Certificate)
	r.workCtx, r.endWork = context.WithCancel(a.workCtx)
	r.proxy = &reverseproxy.Proxy{
		Locate: r.locate, Connections: r.connections, Pages: a.pages, AcquireSlot: a.AcquireSlot, LongRunning: requestinfo.LongRunning, FollowRedirects: a.FollowRedirects, OnError: a.Metrics.certificateRejected,
		Breaker: reverseproxy.NewBreaker(r.workCtx, &a.probes, reverseproxy.BreakerConfig{Probe: r.probe, MaxRequests: a.MaxRequests, OnChange: r.breakerChanged}),
		Traces:  a.Traces, Logger: a.Logger, Name: r.name,
	}
	r.description.Store(&description{stale: true})
	return r
}

// ServeHTTP proxies a request as its user.
func (r *remote) ServeHTTP(w http.ResponseWriter, in *http.Request) {
	switch {
	case !r.available():
		http.Error(w, reverseproxy.Unavailable, http.StatusServiceUnavailable)
	case r.proxyErr != nil:
		http.Error(w, r.proxyErr.Error(), http.StatusInternalServerError)
	default:
		r.proxy.Serve(w, in, nil)
	}
}

// close ends probes and closes idle connections.
func (r *remote) close() {
	r.endWork()
	r.aggregator.Metrics.setUnreachable(r.name, false)
	r.connections.CloseIdleConnections()
	r.unverified.CloseIdleConnections()
}

// available returns the result of the last check of this process or, before the first one, the
// condition of the APIService.
func (r *remote) available() bool {
	c := r.lastCheck.Load()
	if c == nil {
		c = r.storedCondition.Load()
	}
	return c != nil && c.Status == apiregistrationv1.ConditionTrue
}

// locate returns the current URL of a path of the server.
func (r *remote) locate(ctx context.Context, path string) (*url.URL, error) {
	s := r.spec.Service
	host, err := r.aggregator.Resolve(ctx, s.Namespace, s.Name, r.port)
	if err != nil {
		return nil, err
	}
	return &url.URL{Scheme: "https", Host: host, Path: path}, nil
}

// probe probes the server over the connections for proxied requests.
func (r *remote) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	_, _, err := r.get(ctx, r.path(), documentRequest{accept: api.MediaJSON, user: checkUser})
	if err != nil {
		r.connections.CloseIdleConnections() // the next request uses a new connection
	}
	return err
}

// breakerChanged records that the breaker opened, with a reason, or closed.
func (r *remote) breakerChanged(reason error) {
	r.aggregator.Metrics.setUnreachable(r.name, reason != nil)
	if reason != nil {
		r.aggregator.Logger.Error("extension server unreachable; no requests until it responds", "apiservice", r.name, "error", reason)
	} else {
		r.aggregator.Logger.Info("extension server reachable again", "apiservice", r.name)
	}
	r.scheduleCheck() // updates the condition
	r.aggregator.TriggerChecks()
}
