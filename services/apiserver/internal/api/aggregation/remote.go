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
	all  *Aggregator
	key  string // see registration
	name string
	spec apiregistrationv1.APIServiceSpec
	port int32

	// connections holds connections to a verified server. ask holds unverified connections, because
	// availability does not depend on the server's certificate.
	connections, ask *clientcerts.Pool
	broken           error // why requests cannot be proxied
	way              *reverseproxy.Proxy
	life             context.Context // context of work apart from requests
	retire           context.CancelFunc

	// stored is the condition of the APIService. found is the result of the last check here.
	stored, found atomic.Pointer[apiregistrationv1.APIServiceCondition]
	known         atomic.Pointer[description]
	specs         specs

	mu      sync.Mutex // leaf lock
	next    time.Time  // time of the next check
	last    time.Time  // time of the last check
	retry   time.Duration
	looking bool
	poked   bool // a check is wanted soon
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
	}
	if len(s.Spec.CABundle) > 0 {
		security.RootCAs = x509.NewCertPool()
		if !security.RootCAs.AppendCertsFromPEM(s.Spec.CABundle) {
			r.broken = errors.New("unable to load root certificates: unable to parse bytes as PEM block")
		}
	}
	r.connections = reverseproxy.Connections(a.dial, security, a.Certificate)
	unverified := security.Clone()
	unverified.InsecureSkipVerify = true
	r.ask = reverseproxy.Connections(a.dial, unverified, a.Certificate)
	r.life, r.retire = context.WithCancel(a.living)
	r.way = &reverseproxy.Proxy{
		Locate: r.locate, Connections: r.connections, Pages: a.pages, AcquireSlot: a.AcquireSlot, LongRunning: requestinfo.LongRunning, FollowRedirects: a.FollowRedirects, OnError: a.Metrics.certificateRejected,
		Breaker: reverseproxy.NewBreaker(r.life, &a.probes, reverseproxy.BreakerConfig{Probe: r.live, MaxRequests: a.MaxRequests, OnChange: r.breakerChanged}),
		Traces:  a.Traces, Logger: a.Logger, Name: r.name,
	}
	r.known.Store(&description{stale: true})
	return r
}

// ServeHTTP proxies a request as its user.
func (r *remote) ServeHTTP(w http.ResponseWriter, in *http.Request) {
	switch {
	case !r.available():
		http.Error(w, reverseproxy.Unavailable, http.StatusServiceUnavailable)
	case r.broken != nil:
		http.Error(w, r.broken.Error(), http.StatusInternalServerError)
	default:
		r.way.Serve(w, in, nil)
	}
}

// close ends probes and closes idle connections.
func (r *remote) close() {
	r.retire()
	r.all.Metrics.setUnreachable(r.name, false)
	r.connections.CloseIdleConnections()
	r.ask.CloseIdleConnections()
}

// available returns the result of the last check here or, before the first one, the condition of
// the APIService.
func (r *remote) available() bool {
	c := r.found.Load()
	if c == nil {
		c = r.stored.Load()
	}
	return c != nil && c.Status == apiregistrationv1.ConditionTrue
}

// locate returns the current URL of a path of the server.
func (r *remote) locate(ctx context.Context, path string) (*url.URL, error) {
	s := r.spec.Service
	host, err := r.all.Resolve(ctx, s.Namespace, s.Name, r.port)
	if err != nil {
		return nil, err
	}
	return &url.URL{Scheme: "https", Host: host, Path: path}, nil
}

// live probes the server over the connections for proxied requests.
func (r *remote) live(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	_, _, err := r.get(ctx, r.path(), documentRequest{accept: api.MediaJSON, as: asker})
	if err != nil {
		r.connections.CloseIdleConnections() // the next request uses a new connection
	}
	return err
}

// breakerChanged records that the breaker opened, with a reason, or closed.
func (r *remote) breakerChanged(reason error) {
	r.all.Metrics.setUnreachable(r.name, reason != nil)
	if reason != nil {
		r.all.Logger.Error("extension server unreachable; no requests until it responds", "apiservice", r.name, "error", reason)
	} else {
		r.all.Logger.Info("extension server reachable again", "apiservice", r.name)
	}
	r.scheduleCheck() // updates the condition
	r.all.Wake()
}
