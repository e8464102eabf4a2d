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

// remote is the extension server of one APIService. It is replaced when the spec of the APIService
// changes.
type remote struct {
	aggregator *Aggregator
	key        string // registration.key
	name       string // of the APIService
	spec       apiregistrationv1.APIServiceSpec
	port       int32
	// connections is for requests, and verifies the server's certificate. unverified is for checks,
	// because the availability of a server does not depend on its certificate.
	connections, unverified *clientcerts.Pool
	proxyErr                error // if set, why requests cannot be proxied
	proxy                   *reverseproxy.Proxy
	// workCtx is the context of work that belongs to no request. close cancels it.
	workCtx    context.Context
	cancelWork context.CancelFunc
	// storedCondition is the condition Available in the stored APIService.
	storedCondition atomic.Pointer[apiregistrationv1.APIServiceCondition]
	// lastCheck is the result of the last check by this process; nil before the first one.
	lastCheck   atomic.Pointer[apiregistrationv1.APIServiceCondition]
	description atomic.Pointer[description]
	specs       specs

	mu          sync.Mutex // leaf lock; protects the fields below
	nextCheckAt time.Time
	lastCheckAt time.Time     // when the last check started
	retryDelay  time.Duration // 0 after a successful check
	checking    bool          // a check is running
	checkSoon   bool          // a check was requested since the last startCheckIfDue
	checkAgain  bool          // a check was requested while another one is running
}

// newRemote returns the extension server of an APIService. It does not connect to the server yet.
// key is the key of the registration.
func newRemote(aggregator *Aggregator, key string, apiService *apiregistrationv1.APIService) *remote {
	out := &remote{aggregator: aggregator, key: key, name: apiService.Name, spec: apiService.Spec, port: 443}
	if p := apiService.Spec.Service.Port; p != nil {
		out.port = *p
	}
	verified := &tls.Config{
		MinVersion:         tls.VersionTLS12,
		ServerName:         apiService.Spec.Service.Name + "." + apiService.Spec.Service.Namespace + ".svc",
		InsecureSkipVerify: apiService.Spec.InsecureSkipTLSVerify, //nolint:gosec // the administrator may disable it
	}
	if len(apiService.Spec.CABundle) > 0 {
		verified.RootCAs = x509.NewCertPool()
		if !verified.RootCAs.AppendCertsFromPEM(apiService.Spec.CABundle) {
			out.proxyErr = errors.New("unable to load root certificates: unable to parse bytes as PEM block")
		}
	}
	out.connections = reverseproxy.Connections(aggregator.dial, verified, aggregator.Certificate)
	unverified := verified.Clone()
	unverified.InsecureSkipVerify = true
	out.unverified = reverseproxy.Connections(aggregator.dial, unverified, aggregator.Certificate)
	out.workCtx, out.cancelWork = context.WithCancel(aggregator.workCtx)
	out.proxy = &reverseproxy.Proxy{
		Locate:          out.locate,
		Connections:     out.connections,
		Pages:           aggregator.pages,
		AcquireSlot:     aggregator.AcquireSlot,
		LongRunning:     requestinfo.LongRunning,
		FollowRedirects: aggregator.FollowRedirects,
		OnError:         aggregator.Metrics.countCertificateError,
		Breaker: reverseproxy.NewBreaker(out.workCtx, &aggregator.background, reverseproxy.BreakerConfig{
			Probe: out.probe, MaxRequests: aggregator.MaxRequests, OnChange: out.breakerChanged,
		}),
		Traces: aggregator.Traces, Logger: aggregator.Logger, Name: out.name,
	}
	out.description.Store(&description{stale: true})
	return out
}

// ServeHTTP proxies a request with the user's identity in headers. It rejects the request if the
// server is unavailable.
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

// close stops probes and checks, and closes idle connections. Requests in progress complete.
func (r *remote) close() {
	r.cancelWork()
	r.aggregator.Metrics.setUnreachable(r.name, false)
	r.connections.CloseIdleConnections()
	r.unverified.CloseIdleConnections()
}

// available reports whether the server is available according to the last check by this process or,
// before the first one, the condition in the stored APIService.
func (r *remote) available() bool {
	condition := r.lastCheck.Load()
	if condition == nil {
		condition = r.storedCondition.Load()
	}
	return condition != nil && condition.Status == apiregistrationv1.ConditionTrue
}

// locate returns the current URL for a path on the server.
func (r *remote) locate(ctx context.Context, path string) (*url.URL, error) {
	s := r.spec.Service
	host, err := r.aggregator.Resolve(ctx, s.Namespace, s.Name, r.port)
	if err != nil {
		return nil, err
	}
	return &url.URL{Scheme: "https", Host: host, Path: path}, nil
}

// probe checks for the circuit breaker whether the server can be reached over the connections for
// requests. Any response counts as success.
func (r *remote) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	_, _, err := r.get(ctx, r.path(), documentRequest{accept: api.MediaJSON, user: checkUser})
	if err != nil {
		r.connections.CloseIdleConnections() // the next request uses a new connection
	}
	return err
}

// breakerChanged records that the circuit breaker has opened or closed. reason says why it has
// opened. It is nil if the breaker has closed.
func (r *remote) breakerChanged(reason error) {
	r.aggregator.Metrics.setUnreachable(r.name, reason != nil)
	if reason != nil {
		r.aggregator.Logger.Error("extension server unreachable; no requests until it responds",
			"apiservice", r.name, "error", reason)
	} else {
		r.aggregator.Logger.Info("extension server reachable again", "apiservice", r.name)
	}
	r.scheduleCheck() // to update the condition
	r.aggregator.TriggerChecks()
}
