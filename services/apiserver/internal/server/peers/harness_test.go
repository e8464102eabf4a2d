package peers_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apiserverinternalv1alpha1 "k8s.io/api/apiserverinternal/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/deploy/certs"
	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/cache/attributes"
	"binnacle/services/apiserver/internal/cache/objects"
	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/request/requesttest"
	"binnacle/services/apiserver/internal/server/peers"
	"binnacle/services/apiserver/internal/storage"
)

const prefix = "/registry/storageversions/"

// versionSource is a store of storage versions to which a test may add more.
type versionSource struct {
	first []storage.KeyValue
	more  chan storage.KeyValue
}

func (s *versionSource) Load(_ context.Context, page func([]storage.KeyValue) error) (storage.Position, error) {
	return storage.Position{Revision: 10}, page(s.first)
}

func (s *versionSource) Follow(ctx context.Context, from storage.Position, apply func(storage.Batch) error) error {
	for at := from.Revision + 1; ; at++ {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case kv := <-s.more:
			if err := apply(storage.Batch{
				Revision: at,
				Events:   []storage.Event{{Type: storage.Created, Key: kv.Key, Value: kv.Value, Revision: at, CreateRevision: at}},
			}); err != nil {
				return err
			}
		}
	}
}

func (*versionSource) Progress(context.Context) error { return nil }

func (*versionSource) VerifyHistory(context.Context, storage.Position) (int64, error) { return 10, nil }

// newStorageVersion returns a storage version; served has the served versions by replica.
func newStorageVersion(name string, served map[string][]string, owners ...string) storage.KeyValue {
	v := apiserverinternalv1alpha1.StorageVersion{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, kind := range owners {
		v.OwnerReferences = append(v.OwnerReferences, metav1.OwnerReference{Kind: kind})
	}
	for id, versions := range served {
		v.Status.StorageVersions = append(v.Status.StorageVersions, apiserverinternalv1alpha1.ServerStorageVersion{
			APIServerID:    id,
			ServedVersions: versions,
		})
	}
	text, _ := json.Marshal(v) // cannot fail for this type
	return storage.KeyValue{Key: prefix + name, Value: text, CreateRevision: 2, ModRevision: 2}
}

// fixture is a replica that proxies to others.
type fixture struct {
	*peers.Peers
	t      *testing.T
	files  certs.Layout
	source *versionSource
	stop   func()

	mu        sync.Mutex
	addresses map[string]string
	failure   error
	reads     int
	now       time.Time
	gone      map[string]bool
	trusted   *x509.CertPool
	rejected  []error
	registry  *prometheus.Registry
}

// newFixture returns a proxy whose cache holds the given storage versions, and certificates for
// replicas.
func newFixture(t *testing.T, all ...storage.KeyValue) *fixture {
	t.Helper()
	w := &fixture{
		t:         t,
		files:     certs.Layout{Dir: t.TempDir()},
		addresses: map[string]string{},
		gone:      map[string]bool{},
		registry:  prometheus.NewRegistry(),
		now:       time.Now(),
	}
	if _, err := certs.Ensure(certs.Options{Dir: w.files.Dir}); err != nil {
		t.Fatal(err)
	}
	w.trusted = w.peerPool()
	w.source = &versionSource{all, make(chan storage.KeyValue)}
	cache, err := watchcache.New(watchcache.Config{
		Source:          w.source,
		CurrentRevision: w.source,
		Logger:          slog.New(slog.DiscardHandler),
		Resources: []watchcache.ResourceConfig{{
			Name: "storageversions", Prefix: prefix,
			Attributes: func(key string, _ []byte) (attributes.Attributes, error) {
				return attributes.Attributes{Name: path.Base(key)}, nil
			},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = cache.Run(ctx) })
	if err := cache.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.Peers = peers.New(peers.Config{
		Identity: "me",
		Store:    cache.Store(prefix),
		MaxPages: 16,
		Decode: func(e *objects.Entry) (*apiserverinternalv1alpha1.StorageVersion, error) {
			v := &apiserverinternalv1alpha1.StorageVersion{}
			if err := json.Unmarshal(e.Stored(), v); err != nil {
				return nil, err
			}
			return v, nil
		},
		Exists: func(id string) bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			return !w.gone[id]
		},
		Addresses: func(context.Context) (map[string]string, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.reads++
			return maps.Clone(w.addresses), w.failure
		},
		Authorities: func() *x509.CertPool {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.trusted
		},
		Certificate: func() *tls.Certificate { return w.newCertificate(w.files.FrontProxy()) },
		Reject: func(rw http.ResponseWriter, _ *http.Request, err error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.rejected = append(w.rejected, err)
			rw.WriteHeader(http.StatusServiceUnavailable)
		},
		Metrics: peers.NewMetrics(w.registry),
		Logger:  slog.New(slog.DiscardHandler),
		Now: func() time.Time {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.now
		},
	})
	running.Go(func() { _ = w.Run(ctx) })
	w.stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	t.Cleanup(w.stop)
	return w
}

// peerPool returns a pool with the CA of the peers' certificates.
func (w *fixture) peerPool() *x509.CertPool {
	w.t.Helper()
	text, err := os.ReadFile(w.files.CA(certs.ServingCA).Cert)
	pool := x509.NewCertPool()
	if err != nil || !pool.AppendCertsFromPEM(text) {
		w.t.Fatal(errors.Join(err, errors.New("no CA certificate")))
	}
	return pool
}

func (w *fixture) newCertificate(p certs.Pair) *tls.Certificate {
	pair, err := tls.LoadX509KeyPair(p.Cert, p.Key)
	if err != nil {
		w.t.Error(err)
	}
	return &pair
}

// expireAddresses advances the clock until cached addresses have expired.
func (w *fixture) expireAddresses() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = w.now.Add(2 * time.Second)
}

// setAddress sets the address of a replica.
func (w *fixture) setAddress(id, address string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.addresses[id] = address
}

// startPeerWith starts a peer that serves all requests with a handler.
func (w *fixture) startPeerWith(id string, answer http.HandlerFunc) *httptest.Server {
	w.t.Helper()
	s := httptest.NewUnstartedServer(answer)
	w.startPeer(id, s)
	return s
}

// startPeer starts a server as a peer and sets its address.
func (w *fixture) startPeer(id string, s *httptest.Server) {
	w.t.Helper()
	s.TLS = &tls.Config{
		MinVersion:   tls.VersionTLS12,
		Certificates: []tls.Certificate{*w.newCertificate(w.files.APIServer())},
		ClientAuth:   tls.RequestClientCert,
	}
	s.StartTLS()
	w.t.Cleanup(s.Close)
	w.setAddress(id, s.Listener.Addr().String())
}

// send sends a request for a resource to a peer. It returns nil if no other replica serves it.
func (w *fixture) send(resource string, header ...string) *httptest.ResponseRecorder {
	w.t.Helper()
	op := &requestinfo.Info{IsResource: true, Verb: "list", Group: "g", Version: "v1", Resource: resource}
	r := httptest.NewRequest("GET", "/apis/g/v1/"+resource, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	h := w.Handler(r, op)
	if h == nil {
		return nil
	}
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, r.WithContext(requesttest.WithUser(r.Context(), &request.User{Name: "ada", Groups: []string{"dev"}})))
	return rec
}
