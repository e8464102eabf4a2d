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

// versionSource is a store of storage versions. A test adds versions to it through added.
type versionSource struct {
	initial []storage.KeyValue
	added   chan storage.KeyValue
}

func (s *versionSource) Load(_ context.Context, page func([]storage.KeyValue) error) (storage.Position, error) {
	return storage.Position{Revision: 10}, page(s.initial)
}

func (s *versionSource) Follow(ctx context.Context, from storage.Position, apply func(storage.Batch) error) error {
	for revision := from.Revision + 1; ; revision++ {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case kv := <-s.added:
			if err := apply(storage.Batch{
				Revision: revision,
				Events:   []storage.Event{{Type: storage.Created, Key: kv.Key, Value: kv.Value, Revision: revision, CreateRevision: revision}},
			}); err != nil {
				return err
			}
		}
	}
}

func (*versionSource) Progress(context.Context) error { return nil }

func (*versionSource) VerifyHistory(context.Context, storage.Position) (int64, error) { return 10, nil }

// newStorageVersion returns a stored storage version. served holds the served versions by replica,
// owners the kinds of its owner references.
func newStorageVersion(name string, served map[string][]string, owners ...string) storage.KeyValue {
	version := apiserverinternalv1alpha1.StorageVersion{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, kind := range owners {
		version.OwnerReferences = append(version.OwnerReferences, metav1.OwnerReference{Kind: kind})
	}
	for id, versions := range served {
		version.Status.StorageVersions = append(version.Status.StorageVersions, apiserverinternalv1alpha1.ServerStorageVersion{
			APIServerID:    id,
			ServedVersions: versions,
		})
	}
	text, _ := json.Marshal(version) // cannot fail for this type
	return storage.KeyValue{Key: prefix + name, Value: text, CreateRevision: 2, ModRevision: 2}
}

// fixture is a replica that proxies requests to its peers.
type fixture struct {
	*peers.Peers
	t      *testing.T
	files  certs.Layout
	source *versionSource
	stop   func()

	mu        sync.Mutex
	addresses map[string]string // by replica
	failure   error             // of reads of the addresses
	reads     int               // number of reads of the addresses
	now       time.Time
	gone      map[string]bool // replicas that do not exist any more
	trusted   *x509.CertPool
	rejected  []error // errors of rejected requests
	registry  *prometheus.Registry
}

// newFixture returns a proxy whose cache holds the given storage versions, and certificates for
// replicas.
func newFixture(t *testing.T, versions ...storage.KeyValue) *fixture {
	t.Helper()
	created := &fixture{
		t:         t,
		files:     certs.Layout{Dir: t.TempDir()},
		addresses: map[string]string{},
		gone:      map[string]bool{},
		registry:  prometheus.NewRegistry(),
		now:       time.Now(),
	}
	if _, err := certs.Ensure(certs.Options{Dir: created.files.Dir}); err != nil {
		t.Fatal(err)
	}
	created.trusted = created.peerPool()
	created.source = &versionSource{versions, make(chan storage.KeyValue)}
	cache, err := watchcache.New(watchcache.Config{
		Source:          created.source,
		CurrentRevision: created.source,
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
	created.Peers = peers.New(peers.Config{
		Identity: "me",
		Store:    cache.Store(prefix),
		MaxPages: 16,
		Decode: func(e *objects.Entry) (*apiserverinternalv1alpha1.StorageVersion, error) {
			version2 := &apiserverinternalv1alpha1.StorageVersion{}
			if err := json.Unmarshal(e.Stored(), version2); err != nil {
				return nil, err
			}
			return version2, nil
		},
		Exists: func(id string) bool {
			created.mu.Lock()
			defer created.mu.Unlock()
			return !created.gone[id]
		},
		Addresses: func(context.Context) (map[string]string, error) {
			created.mu.Lock()
			defer created.mu.Unlock()
			created.reads++
			return maps.Clone(created.addresses), created.failure
		},
		Authorities: func() *x509.CertPool {
			created.mu.Lock()
			defer created.mu.Unlock()
			return created.trusted
		},
		Certificate: func() *tls.Certificate { return created.newCertificate(created.files.FrontProxy()) },
		Reject: func(response http.ResponseWriter, _ *http.Request, err error) {
			created.mu.Lock()
			defer created.mu.Unlock()
			created.rejected = append(created.rejected, err)
			response.WriteHeader(http.StatusServiceUnavailable)
		},
		Metrics: peers.NewMetrics(created.registry),
		Logger:  slog.New(slog.DiscardHandler),
		Now: func() time.Time {
			created.mu.Lock()
			defer created.mu.Unlock()
			return created.now
		},
	})
	running.Go(func() { _ = created.Run(ctx) })
	created.stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	t.Cleanup(created.stop)
	return created
}

// peerPool returns a pool with the CA of the peers' certificates.
func (f *fixture) peerPool() *x509.CertPool {
	f.t.Helper()
	text, err := os.ReadFile(f.files.CA(certs.ServingCA).Cert)
	pool := x509.NewCertPool()
	if err != nil || !pool.AppendCertsFromPEM(text) {
		f.t.Fatal(errors.Join(err, errors.New("no CA certificate")))
	}
	return pool
}

// newCertificate returns the certificate in a pair of files.
func (f *fixture) newCertificate(files certs.Pair) *tls.Certificate {
	pair, err := tls.LoadX509KeyPair(files.Cert, files.Key)
	if err != nil {
		f.t.Error(err)
	}
	return &pair
}

// expireAddresses advances the clock until cached addresses have expired.
func (f *fixture) expireAddresses() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now = f.now.Add(2 * time.Second)
}

// setAddress sets the address of a replica.
func (f *fixture) setAddress(id, address string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.addresses[id] = address
}

// startPeerWith starts a peer that serves all requests with a handler.
func (f *fixture) startPeerWith(id string, handler http.HandlerFunc) *httptest.Server {
	f.t.Helper()
	testServer := httptest.NewUnstartedServer(handler)
	f.startPeer(id, testServer)
	return testServer
}

// startPeer starts a server as a peer and sets its address.
func (f *fixture) startPeer(identity string, testServer *httptest.Server) {
	f.t.Helper()
	testServer.TLS = &tls.Config{
		MinVersion:   tls.VersionTLS12,
		Certificates: []tls.Certificate{*f.newCertificate(f.files.APIServer())},
		ClientAuth:   tls.RequestClientCert,
	}
	testServer.StartTLS()
	f.t.Cleanup(testServer.Close)
	f.setAddress(identity, testServer.Listener.Addr().String())
}

// send sends a request for a resource of group g to a peer. header alternates names and values. It
// returns nil if no other replica serves the resource.
func (f *fixture) send(resource string, header ...string) *httptest.ResponseRecorder {
	f.t.Helper()
	info := &requestinfo.Info{IsResource: true, Verb: "list", Group: "g", Version: "v1", Resource: resource}
	r := httptest.NewRequest("GET", "/apis/g/v1/"+resource, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	handler := f.Handler(r, info)
	if handler == nil {
		return nil
	}
	response := httptest.NewRecorder()
	handler.ServeHTTP(response, r.WithContext(requesttest.WithUser(r.Context(), &request.User{Name: "ada", Groups: []string{"dev"}})))
	return response
}
