package aggregate

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
	apiregistrationv1 "binnacle/services/apiserver/internal/apis/apiregistration/v1"
	"binnacle/services/apiserver/internal/carry"
	"binnacle/services/apiserver/internal/connections"
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
	carry, ask *connections.Pool
	broken     error // why nothing can be carried on
	way        *carry.Way
	life       context.Context // that of what goes on for it beside requests
	retire     context.CancelFunc

	// told is the condition that the APIService shows, found what was found here.
	told, found atomic.Pointer[apiregistrationv1.APIServiceCondition]
	known       atomic.Pointer[description]
	specs       specs

	mu      sync.Mutex // a leaf
	next    time.Time  // when it is to be checked
	last    time.Time  // when it was
	retry   time.Duration
	looking bool
	poked   bool // it is to be checked soon
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
	r.carry = carry.Connections(a.dial, security, a.Certificate)
	unverified := security.Clone()
	unverified.InsecureSkipVerify = true
	r.ask = carry.Connections(a.dial, unverified, a.Certificate)
	r.life, r.retire = context.WithCancel(a.living)
	r.way = &carry.Way{
		Locate: r.locate, Connections: r.carry, Pages: a.pages, Place: a.Place, FollowRedirects: a.FollowRedirects, Refused: a.Metrics.refused,
		Breaker: carry.NewBreaker(r.life, &a.probes, carry.BreakerConfig{Probe: r.live, Most: a.MaxRequests, Turned: r.turned}),
		Traces:  a.Traces, Logger: a.Logger, Name: r.name,
	}
	r.known.Store(&description{stale: true})
	return r
}

// ServeHTTP carries a request on as its user.
func (r *remote) ServeHTTP(w http.ResponseWriter, in *http.Request) {
	switch {
	case !r.available():
		http.Error(w, carry.Unavailable, http.StatusServiceUnavailable)
	case r.broken != nil:
		http.Error(w, r.broken.Error(), http.StatusInternalServerError)
	default:
		r.way.Carry(w, in, nil)
	}
}

// close ends probes, and lets go of connections that nobody uses.
func (r *remote) close() {
	r.retire()
	r.all.Metrics.open(r.name, false)
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

// live asks the server for anything at all, as requests are carried on.
func (r *remote) live(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	_, _, err := r.get(ctx, r.path(), question{accept: api.MediaJSON, as: asker})
	if err != nil {
		r.carry.CloseIdleConnections() // the next has a new one
	}
	return err
}

// turned notes that the server does not live, or lives again.
func (r *remote) turned(reason error) {
	r.all.Metrics.open(r.name, reason != nil)
	if reason != nil {
		r.all.Logger.Error("the server of an API is not asked until it answers again", "apiservice", r.name, "error", reason)
	} else {
		r.all.Logger.Info("the server of an API answers again", "apiservice", r.name)
	}
	r.stir() // the condition should say so
	r.all.Wake()
}
