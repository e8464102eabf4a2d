package peers

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	apiserverinternalv1alpha1 "k8s.io/api/apiserverinternal/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"binnacle/libs/tracing"
	"binnacle/services/apiserver/internal/answers"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/watchcache"
)

// Header, set to "true", says that a peer carried a request on.
const Header = "X-Kubernetes-Peer-Proxied"

const (
	// freshFor is how long it counts where peers are, whom many requests may ask for.
	freshFor = time.Second
	// lookWithin bounds how long a request waits to learn it.
	lookWithin = 3 * time.Second
)

// Config is what Peers works with.
type Config struct {
	// Identity names this replica among those of storage versions.
	Identity string
	// StorageVersions are read from Store by Decode.
	Store  *watchcache.Store
	Decode func(*watchcache.Entry) (*apiserverinternalv1alpha1.StorageVersion, error)
	// Exists tells whether there is such a replica: what those say that are gone stays.
	Exists func(identity string) bool
	// Addresses are host:port of the replicas that live, by identity.
	Addresses func(context.Context) (map[string]string, error)
	// Authorities verify peers.
	Authorities func() *x509.CertPool
	// Certificate shows peers who asks; it may return nil.
	Certificate func() *tls.Certificate
	// MaxRequests bounds the requests that wait for the same peer; 0 is no bound.
	MaxRequests int
	// Refuse answers a request that no peer can be asked for.
	Refuse  func(w http.ResponseWriter, r *http.Request, err error)
	Metrics *Metrics
	// Traces, if set, makes spans of what goes on to peers.
	Traces *tracing.Provider
	Logger *slog.Logger
}

// Peers knows which replicas serve what this one does not.
type Peers struct {
	Config
	pages  *answers.Room
	living context.Context
	die    context.CancelFunc
	probes sync.WaitGroup

	index   atomic.Pointer[index]
	indexes sync.Mutex // serializes making; a leaf

	looking sync.Mutex // serializes reading addresses; before mu
	known   map[string]string
	failed  error
	readAt  time.Time

	mu    sync.Mutex // a leaf
	peers map[string]*peer
}

// New makes Peers, which Run has to end.
func New(c Config) *Peers {
	p := &Peers{Config: c, pages: answers.NewRoom(), peers: map[string]*peer{}}
	p.living, p.die = context.WithCancel(context.Background())
	p.index.Store(&index{})
	return p
}

// Run lets go of connections when ctx ends.
func (p *Peers) Run(ctx context.Context) error {
	<-ctx.Done()
	p.die()
	p.probes.Wait()
	p.keep(nil)
	return nil
}

// Handler carries a request for a resource that this replica does not serve on; nil when
// nobody says that he does, or when a peer sent it.
func (p *Peers) Handler(r *http.Request, op *request.Operation) http.Handler {
	if !op.IsResource || r.Header.Get(Header) == "true" {
		return nil
	}
	ids := p.serving(op.GVR())
	if len(ids) == 0 {
		return nil
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { p.carry(w, r, ids) })
}

func (p *Peers) carry(w http.ResponseWriter, r *http.Request, ids []string) {
	to, err := p.choose(r.Context(), ids)
	if err != nil {
		p.Logger.Warn("no peer can be asked for what it serves", "path", r.URL.Path, "error", err)
		p.Refuse(w, r, apierrors.NewServiceUnavailable("Error getting ip and port info of the remote server while proxying"))
		return
	}
	told := &teller{ResponseWriter: w}
	defer func() { p.Metrics.rerouted(told.code) }()
	to.way.Carry(told, r, http.Header{Header: {"true"}})
}

// choose one of the replicas that live, and rather one that answers.
func (p *Peers) choose(ctx context.Context, ids []string) (*peer, error) {
	at, err := p.addresses(ctx)
	if err != nil {
		return nil, err
	}
	var there, open []*peer
	for _, id := range ids {
		if at[id] == "" {
			continue
		}
		peer := p.peer(id, at[id])
		if peer.way.Breaker.Open() != nil {
			open = append(open, peer)
		} else {
			there = append(there, peer)
		}
	}
	if len(there) == 0 {
		there = open
	}
	if len(there) == 0 {
		return nil, errNobody
	}
	return there[rand.IntN(len(there))], nil
}

// addresses are read when they are asked for, once for all who ask.
func (p *Peers) addresses(ctx context.Context) (map[string]string, error) {
	p.looking.Lock()
	defer p.looking.Unlock()
	if time.Since(p.readAt) < freshFor {
		return p.known, p.failed
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookWithin)
	defer cancel()
	p.known, p.failed = p.Addresses(ctx)
	p.readAt = time.Now()
	if p.failed == nil {
		p.keep(p.known)
	}
	return p.known, p.failed
}

// keep lets go of peers that are not where they were.
func (p *Peers) keep(at map[string]string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, peer := range p.peers {
		if at[id] != peer.address {
			peer.close()
			delete(p.peers, id)
		}
	}
}

func (p *Peers) peer(id, address string) *peer {
	p.mu.Lock()
	defer p.mu.Unlock()
	is, trusted := p.peers[id], p.Authorities()
	if is == nil || is.address != address || is.trusted != trusted {
		if is != nil {
			is.close()
		}
		is = newPeer(p, id, address, trusted)
		p.peers[id] = is
	}
	return is
}

// serving are the other replicas that say that they serve a resource, in order.
func (p *Peers) serving(r resource) []string {
	return slices.DeleteFunc(slices.Clone(p.said()[r]), func(id string) bool { return id == p.Identity || !p.Exists(id) })
}
