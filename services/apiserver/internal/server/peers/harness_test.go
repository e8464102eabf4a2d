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

	"github.com/prometheus/client_golang/prometheus"
	apiserverinternalv1alpha1 "k8s.io/api/apiserverinternal/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/deploy/certs"
	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/server/peers"
	"binnacle/services/apiserver/internal/storage"
)

const prefix = "/registry/storageversions/"

// said is a store of storage versions, of which more may come.
type said struct {
	first []storage.KeyValue
	more  chan storage.KeyValue
}

func (s *said) Load(_ context.Context, page func([]storage.KeyValue) error) (storage.Place, error) {
	return storage.Place{Revision: 10}, page(s.first)
}

func (s *said) Follow(ctx context.Context, from storage.Place, apply func(storage.Batch) error) error {
	for at := from.Revision + 1; ; at++ {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case kv := <-s.more:
			if err := apply(storage.Batch{Revision: at, Events: []storage.Event{{Type: storage.Created, Key: kv.Key, Value: kv.Value, Revision: at, CreateRevision: at}}}); err != nil {
				return err
			}
		}
	}
}

func (*said) Progress(context.Context) error { return nil }

func (*said) Confirm(context.Context, storage.Place) (int64, error) { return 10, nil }

// version is a storage version; served are versions by replicas.
func version(name string, served map[string][]string, owners ...string) storage.KeyValue {
	v := apiserverinternalv1alpha1.StorageVersion{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, kind := range owners {
		v.OwnerReferences = append(v.OwnerReferences, metav1.OwnerReference{Kind: kind})
	}
	for id, versions := range served {
		v.Status.StorageVersions = append(v.Status.StorageVersions, apiserverinternalv1alpha1.ServerStorageVersion{APIServerID: id, ServedVersions: versions})
	}
	text, _ := json.Marshal(v) // of a type that can be
	return storage.KeyValue{Key: prefix + name, Value: text, CreateRevision: 2, ModRevision: 2}
}

// world is a replica that asks others.
type world struct {
	*peers.Peers
	t     *testing.T
	files certs.Layout
	said  *said
	stop  func()

	mu        sync.Mutex
	addresses map[string]string
	failure   error
	looked    int
	gone      map[string]bool
	trusted   *x509.CertPool
	refused   []error
	registry  *prometheus.Registry
}

func newWorld(t *testing.T, all ...storage.KeyValue) *world {
	t.Helper()
	w := &world{t: t, files: certs.Layout{Dir: t.TempDir()}, addresses: map[string]string{}, gone: map[string]bool{}, registry: prometheus.NewRegistry()}
	if _, err := certs.Ensure(certs.Options{Dir: w.files.Dir}); err != nil {
		t.Fatal(err)
	}
	w.trusted = w.pool()
	w.said = &said{all, make(chan storage.KeyValue)}
	cache, err := watchcache.New(watchcache.Config{Source: w.said, Newest: w.said, Logger: slog.New(slog.DiscardHandler), Resources: []watchcache.Resource{{
		Name: "storageversions", Prefix: prefix,
		Attributes: func(key string, _ []byte) (watchcache.Attributes, error) {
			return watchcache.Attributes{Name: path.Base(key)}, nil
		},
	}}})
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
		Identity: "me", Store: cache.Store(prefix),
		Decode: func(e *watchcache.Entry) (*apiserverinternalv1alpha1.StorageVersion, error) {
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
			w.looked++
			return maps.Clone(w.addresses), w.failure
		},
		Authorities: func() *x509.CertPool {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.trusted
		},
		Certificate: func() *tls.Certificate { return w.pair(w.files.FrontProxy()) },
		Refuse: func(rw http.ResponseWriter, _ *http.Request, err error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.refused = append(w.refused, err)
			rw.WriteHeader(http.StatusServiceUnavailable)
		},
		Metrics: peers.NewMetrics(w.registry), Logger: slog.New(slog.DiscardHandler),
	})
	running.Go(func() { _ = w.Run(ctx) })
	w.stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	t.Cleanup(w.stop)
	return w
}

// pool has the authority of the peers' certificates.
func (w *world) pool() *x509.CertPool {
	w.t.Helper()
	text, err := os.ReadFile(w.files.CA(certs.ServingCA).Cert)
	pool := x509.NewCertPool()
	if err != nil || !pool.AppendCertsFromPEM(text) {
		w.t.Fatal(errors.Join(err, errors.New("there is no authority")))
	}
	return pool
}

func (w *world) pair(p certs.Pair) *tls.Certificate {
	pair, err := tls.LoadX509KeyPair(p.Cert, p.Key)
	if err != nil {
		w.t.Error(err)
	}
	return &pair
}

// at is where a replica is, from now on: who asks looks again.
func (w *world) at(id, address string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.addresses[id] = address
}

// replica is a peer that answers.
func (w *world) replica(id string, answer http.HandlerFunc) *httptest.Server {
	w.t.Helper()
	s := httptest.NewUnstartedServer(answer)
	w.starts(id, s)
	return s
}

// starts a peer that is told of.
func (w *world) starts(id string, s *httptest.Server) {
	w.t.Helper()
	s.TLS = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{*w.pair(w.files.APIServer())}, ClientAuth: tls.RequestClientCert}
	s.StartTLS()
	w.t.Cleanup(s.Close)
	w.at(id, s.Listener.Addr().String())
}

// ask has a request for a resource carried on; nil when nobody else serves it.
func (w *world) ask(resource string, header ...string) *httptest.ResponseRecorder {
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
	h.ServeHTTP(rec, r.WithContext(request.WithUser(r.Context(), &request.User{Name: "ada", Groups: []string{"dev"}})))
	return rec
}
