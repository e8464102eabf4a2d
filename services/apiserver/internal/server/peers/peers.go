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
	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/cache/objects"
	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/proxy/responselimit"
)

// Header, set to "true", marks a request that a peer has proxied.
const Header = "X-Kubernetes-Peer-Proxied"

const (
	// addressTTL is how long the addresses of peers are cached. Many requests may need them.
	addressTTL = time.Second
	// addressTimeout is the maximum wait of a request for the addresses.
	addressTimeout = 3 * time.Second
)

// Config holds the dependencies of Peers.
type Config struct {
	// Identity identifies this replica in storage versions.
	Identity string
	// Store is the watch cache of storage versions. Decode decodes an entry.
	Store  *watchcache.Store
	Decode func(*objects.Entry) (*apiserverinternalv1alpha1.StorageVersion, error)
	// Exists reports whether a replica exists. Storage versions keep the entries of replicas that
	// are gone.
	Exists func(identity string) bool
	// Addresses returns the host:port of live replicas, by identity.
	Addresses func(context.Context) (map[string]string, error)
	// MaxPages is the number of pages whose links are rewritten at a time.
	MaxPages int
	// Authorities returns the certificate authorities that verify peers.
	Authorities func() *x509.CertPool
	// Certificate returns the client certificate for peers. It may return nil.
	Certificate func() *tls.Certificate
	// MaxRequests is the maximum number of requests that wait for one peer; 0 means no limit.
	MaxRequests int
	// Reject writes the response to a request that no peer can serve.
	Reject  func(w http.ResponseWriter, r *http.Request, err error)
	Metrics *Metrics
	// Traces, if set, creates spans for requests to peers.
	Traces *tracing.Provider
	Logger *slog.Logger
	// Now is the clock by which cached addresses expire. The default is time.Now.
	Now func() time.Time
}

// Peers finds the replicas that serve resources that this replica does not serve.
type Peers struct {
	Config
	pages    *responselimit.PageLimiter
	lifetime context.Context
	cancel   context.CancelFunc
	probes   sync.WaitGroup

	index        atomic.Pointer[servingIndex]
	indexUpdates sync.Mutex // serializes updates; leaf lock

	addressReads sync.Mutex        // guards the following fields while addresses are read; acquired before mu
	cached       map[string]string // addresses by identity
	cachedErr    error
	readAt       time.Time

	mu    sync.Mutex // leaf lock
	peers map[string]*peer
}

// New returns a Peers. Run must be called to close it.
func New(config Config) *Peers {
	if config.Now == nil {
		config.Now = time.Now
	}
	result := &Peers{Config: config, pages: responselimit.NewPageLimiter(config.MaxPages), peers: map[string]*peer{}}
	result.lifetime, result.cancel = context.WithCancel(context.Background())
	result.index.Store(&servingIndex{})
	return result
}

// Run closes connections when ctx ends.
func (p *Peers) Run(ctx context.Context) error {
	<-ctx.Done()
	p.cancel()
	p.probes.Wait()
	p.closeMoved(nil)
	return nil
}

// Handler returns a handler that proxies a request for a resource that this replica does not serve.
// It returns nil if no other replica serves the resource or if a peer sent the request.
func (p *Peers) Handler(r *http.Request, info *requestinfo.Info) http.Handler {
	if !info.IsResource || r.Header.Get(Header) == "true" {
		return nil
	}
	identities := p.otherReplicas(info.GVR())
	if len(identities) == 0 {
		return nil
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { p.proxyToAny(w, r, identities) })
}

// proxyToAny proxies a request to one of the replicas with the given ids.
func (p *Peers) proxyToAny(w http.ResponseWriter, r *http.Request, identities []string) {
	peer, err := p.choosePeer(r.Context(), identities)
	if err != nil {
		p.Logger.Warn("no peer available for request", "path", r.URL.Path, "error", err)
		p.Reject(w, r, apierrors.NewServiceUnavailable("Error getting ip and port info of the remote server while proxying"))
		return
	}
	recorder := &codeRecorder{ResponseWriter: w}
	defer func() { p.Metrics.countResponse(recorder.code) }()
	peer.proxy.Serve(recorder, r, http.Header{Header: {"true"}})
}

// choosePeer returns a random live replica, preferably one whose breaker is closed.
func (p *Peers) choosePeer(ctx context.Context, identities []string) (*peer, error) {
	addresses, err := p.liveAddresses(ctx)
	if err != nil {
		return nil, err
	}
	var reachable, unreachable []*peer
	for _, identity := range identities {
		if addresses[identity] == "" {
			continue
		}
		peer := p.peerAt(identity, addresses[identity])
		if peer.proxy.Breaker.Open() == nil {
			reachable = append(reachable, peer)
		} else {
			unreachable = append(unreachable, peer)
		}
	}
	candidates := reachable
	if len(candidates) == 0 {
		candidates = unreachable
	}
	if len(candidates) == 0 {
		return nil, errNoReplica
	}
	return candidates[rand.IntN(len(candidates))], nil
}

// liveAddresses returns the addresses of live replicas by identity. They are read on demand, once
// for all callers.
func (p *Peers) liveAddresses(ctx context.Context) (map[string]string, error) {
	p.addressReads.Lock()
	defer p.addressReads.Unlock()
	if p.Now().Sub(p.readAt) < addressTTL {
		return p.cached, p.cachedErr
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), addressTimeout)
	defer cancel()
	p.cached, p.cachedErr = p.Addresses(ctx)
	p.readAt = p.Now()
	if p.cachedErr == nil {
		p.closeMoved(p.cached)
	}
	return p.cached, p.cachedErr
}

// closeMoved closes the peers that do not have the given addresses any more.
func (p *Peers) closeMoved(addresses map[string]string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for identity, peer := range p.peers {
		if addresses[identity] != peer.address {
			peer.close()
			delete(p.peers, identity)
		}
	}
}

// peerAt returns the peer with an id. It replaces the peer if its address or the authorities have
// changed.
func (p *Peers) peerAt(identity, address string) *peer {
	p.mu.Lock()
	defer p.mu.Unlock()
	existing := p.peers[identity]
	trusted := p.Authorities()
	if existing != nil && existing.address == address && existing.trusted == trusted {
		return existing
	}
	if existing != nil {
		existing.close()
	}
	replacement := newPeer(p, identity, address, trusted)
	p.peers[identity] = replacement
	return replacement
}

// otherReplicas returns the identities of the other replicas that serve a resource, in order.
func (p *Peers) otherReplicas(gvr resource) []string {
	isOther := func(id string) bool { return id != p.Identity && p.Exists(id) }
	return slices.DeleteFunc(slices.Clone(p.servingReplicas()[gvr]), func(id string) bool { return !isOther(id) })
}
