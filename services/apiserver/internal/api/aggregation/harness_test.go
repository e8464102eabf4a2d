package aggregation_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"io"
	"log"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"path"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/api/aggregation"
	"binnacle/services/apiserver/internal/cache/attributes"
	"binnacle/services/apiserver/internal/cache/objects"
	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/proxy/webhookclient"
	apiregistrationv1 "binnacle/services/apiserver/internal/registry/apis/apiregistration/v1"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/request/requesttest"
	"binnacle/services/apiserver/internal/storage"
)

const prefix = "/registry/apiservices/"

// board is a store of APIServices.
type board struct {
	mu       sync.Mutex
	objects  map[string]storage.KeyValue // by key
	events   []storage.Event             // event i has revision 2+i
	revision int64
	moved    chan struct{} // closed and replaced by each write
}

func newBoard() *board {
	return &board{objects: map[string]storage.KeyValue{}, revision: 1, moved: make(chan struct{})}
}

func (b *board) Load(_ context.Context, page func([]storage.KeyValue) error) (storage.Position, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var kvs []storage.KeyValue
	for _, kv := range b.objects {
		kvs = append(kvs, kv)
	}
	return storage.Position{Revision: b.revision}, page(kvs)
}

func (b *board) Follow(ctx context.Context, from storage.Position, apply func(storage.Batch) error) error {
	at := from.Revision
	for {
		b.mu.Lock()
		var news []storage.Event
		for _, ev := range b.events {
			if ev.Revision > at {
				news = append(news, ev)
			}
		}
		at = b.revision
		moved := b.moved
		b.mu.Unlock()
		if len(news) > 0 {
			if err := apply(storage.Batch{Events: news, Revision: at}); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-moved:
		}
	}
}

func (b *board) Progress(context.Context) error { return nil }

func (b *board) VerifyHistory(context.Context, storage.Position) (int64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.revision, nil
}

// put writes an APIService, or deletes the one of the name.
func (b *board) put(name string, s *apiregistrationv1.APIService) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.revision++
	key := prefix + name
	ev := storage.Event{Type: storage.Created, Key: key, Revision: b.revision, CreateRevision: b.revision}
	if had, ok := b.objects[key]; ok {
		ev.Type, ev.CreateRevision = storage.Updated, had.CreateRevision
	}
	if s == nil {
		ev = storage.Event{Type: storage.Deleted, Key: key, Revision: b.revision}
		delete(b.objects, key)
	} else {
		ev.Value, _ = json.Marshal(s) // marshaling this type cannot fail
		b.objects[key] = storage.KeyValue{Key: key, Value: ev.Value, CreateRevision: ev.CreateRevision, ModRevision: b.revision}
	}
	b.events = append(b.events, ev)
	close(b.moved)
	b.moved = make(chan struct{})
}

func (b *board) get(name string) *apiregistrationv1.APIService {
	b.mu.Lock()
	defer b.mu.Unlock()
	kv, ok := b.objects[prefix+name]
	if !ok {
		return nil
	}
	s := &apiregistrationv1.APIService{}
	_ = json.Unmarshal(kv.Value, s) // written by put
	return s
}

// fixture is an aggregator with fake dependencies.
type fixture struct {
	*aggregation.Aggregator
	t        *testing.T
	board    *board
	registry *prometheus.Registry
	stop     func()

	mu            sync.Mutex
	services      map[string]*corev1.Service   // by namespace/name
	endpoints     map[string]*corev1.Endpoints // by namespace/name
	errs          map[string]error             // errors of reading, by "services agg/ext"
	notifications int                          // number of calls of the OnChange function
	local         map[schema.GroupVersion]bool // group versions that this server has itself
	localCalls    int                          // number of calls of Local
	written       []apiregistrationv1.APIServiceCondition
}

func find[T any](b *fixture, from map[string]T, resource, namespace, name string) (T, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	key := namespace + "/" + name
	if err := b.errs[resource+" "+key]; err != nil {
		var none T
		return none, err
	}
	o, ok := from[key]
	if !ok {
		return o, apierrors.NewNotFound(schema.GroupResource{Resource: resource}, name)
	}
	return o, nil
}

// start runs an aggregator. change adjusts its configuration before.
func start(t *testing.T, change func(*fixture, *aggregation.Config)) *fixture {
	t.Helper()
	b := &fixture{
		t: t, board: newBoard(), registry: prometheus.NewRegistry(), local: map[schema.GroupVersion]bool{}, errs: map[string]error{},
		services: map[string]*corev1.Service{
			"agg/ext": {Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"}},
			"agg/cip": {
				ObjectMeta: metav1.ObjectMeta{Namespace: "agg", Name: "cip"},
				Spec:       corev1.ServiceSpec{ClusterIP: "127.0.0.1", Ports: []corev1.ServicePort{{Name: "https", Port: 443}}},
			},
			"agg/typed": {
				ObjectMeta: metav1.ObjectMeta{Namespace: "agg", Name: "typed"},
				Spec: corev1.ServiceSpec{
					Type:      corev1.ServiceTypeClusterIP,
					ClusterIP: "127.0.0.1",
					Ports:     []corev1.ServicePort{{Name: "https", Port: 443}},
				},
			},
		},
		endpoints: map[string]*corev1.Endpoints{},
	}
	cache, err := watchcache.New(watchcache.Config{
		Source:          b.board,
		CurrentRevision: b.board,
		Logger:          slog.New(slog.DiscardHandler),
		Resources: []watchcache.ResourceConfig{{
			Name:   "apiservices",
			Prefix: prefix,
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
	services := &webhookclient.Services{
		LocalAddress: "127.0.0.1:1",
		Get: func(_ context.Context, namespace, name string) (*corev1.Service, error) {
			return find(b, b.services, "services", namespace, name)
		},
	}
	c := aggregation.Config{
		Store: cache.Store(prefix),
		Decode: func(e *objects.Entry) (*apiregistrationv1.APIService, error) {
			s := &apiregistrationv1.APIService{}
			return s, json.Unmarshal(e.Stored(), s)
		},
		Local: func(gv schema.GroupVersion) bool {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.localCalls++
			return b.local[gv]
		},
		Service: services.Get,
		Endpoints: func(_ context.Context, namespace, name string) (*corev1.Endpoints, error) {
			return find(b, b.endpoints, "endpoints", namespace, name)
		},
		Resolve: services.Resolve, Certificate: func() *tls.Certificate { return nil },
		Write: b.write, MaxChecks: 16, MaxPages: 16,
		Metrics: aggregation.NewMetrics(b.registry), Logger: slog.New(slog.DiscardHandler),
	}
	if change != nil {
		change(b, &c)
	}
	b.Aggregator = aggregation.New(c)
	b.OnChange(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.notifications++
	})
	running.Go(func() { _ = b.Run(ctx) })
	b.stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	t.Cleanup(b.stop)
	return b
}

// write sets the condition as the server would.
func (b *fixture) write(_ context.Context, name string, c apiregistrationv1.APIServiceCondition) error {
	s := b.board.get(name)
	if s == nil {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "apiservices"}, name)
	}
	s.Status.Conditions = []apiregistrationv1.APIServiceCondition{c}
	b.mu.Lock()
	b.written = append(b.written, c) // before a watcher sees it
	b.mu.Unlock()
	b.board.put(name, s)
	return nil
}

// condition returns "Status Reason Message" of an APIService.
func (b *fixture) condition(name string) string {
	s := b.board.get(name)
	if s == nil || len(s.Status.Conditions) == 0 {
		return ""
	}
	c := s.Status.Conditions[0]
	return string(c.Status) + " " + c.Reason + " " + c.Message
}

// eventually waits until check reports true. what describes that as a clause: "the server is
// available".
func (b *fixture) eventually(what string, check func() bool) {
	b.t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for !check() {
		if time.Now().After(deadline) {
			b.t.Fatalf("not within 30s: %s", what)
		}
		time.Sleep(5 * time.Millisecond) // between polls of a condition
	}
}

// send sends a request to the handler of the group version as a user.
func (b *fixture) send(u *request.User, r *http.Request) *httptest.ResponseRecorder {
	b.t.Helper()
	w := httptest.NewRecorder()
	h := b.Handler(gv)
	if h == nil {
		b.t.Fatal("no handler for the group version")
	}
	w.Header().Set("Audit-Id", "audit-1")
	h.ServeHTTP(w, r.WithContext(requesttest.WithUser(r.Context(), u)))
	return w
}

// gv is the group version of extension servers in these tests.
var gv = schema.GroupVersion{Group: "ext.test", Version: "v1"}

// name is the name of the APIService of gv.
const name = "v1.ext.test"

// authority signs certificates.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t}
	a.key = a.newKey()
	a.cert = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, a.cert, a.cert, a.key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	a.pem = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	return a
}

func (a *authority) newKey() *ecdsa.PrivateKey {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	return key
}

// issue returns a certificate for a server name, or for a client of that name.
func (a *authority) issue(name string, use x509.ExtKeyUsage) tls.Certificate {
	a.t.Helper()
	key := a.newKey()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{name}, ExtKeyUsage: []x509.ExtKeyUsage{use}, KeyUsage: x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// extension is an extension server.
type extension struct {
	*httptest.Server
	port int32

	mu    sync.Mutex
	serve http.HandlerFunc
	seen  []*http.Request
	conns map[net.Conn]http.ConnState
}

// resourceList lists the resources of an extension server.
const resourceList = `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"ext.test/v1","resources":[` +
	`{"name":"things","singularName":"thing","namespaced":true,"kind":"Thing","verbs":["get","list"],"shortNames":["th"],"categories":["all"]},` +
	`{"name":"things/status","singularName":"","namespaced":true,"kind":"Thing","verbs":["get"]}]}`

// serveResources serves the resources of the group version in the legacy form, without aggregated
// discovery and without OpenAPI documents.
func serveResources(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/apis/ext.test/v1" {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, resourceList)
}

// startExtension starts an extension server whose certificate is for a name.
func startExtension(t *testing.T, cert tls.Certificate, serve http.HandlerFunc) *extension {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return extendOn(t, l, cert, serve)
}

// extendOn starts an extension server on a listener.
func extendOn(t *testing.T, l net.Listener, cert tls.Certificate, serve http.HandlerFunc) *extension {
	t.Helper()
	e := &extension{serve: serve, conns: map[net.Conn]http.ConnState{}}
	e.Server = &httptest.Server{
		Listener: l,
		Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			e.mu.Lock()
			e.seen = append(e.seen, r)
			serve := e.serve
			e.mu.Unlock()
			serve(w, r)
		})},
	}
	e.Config.ErrorLog = log.New(io.Discard, "", 0)
	e.Config.ConnState = func(c net.Conn, s http.ConnState) {
		e.mu.Lock()
		defer e.mu.Unlock()
		if s == http.StateClosed || s == http.StateHijacked {
			delete(e.conns, c)
			return
		}
		e.conns[c] = s
	}
	e.EnableHTTP2 = true
	e.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequestClientCert}
	e.StartTLS()
	t.Cleanup(e.Close)
	_, port, _ := net.SplitHostPort(e.Listener.Addr().String())
	n, _ := strconv.Atoi(port)
	e.port = int32(n)
	return e
}

// handle replaces the handler of the server.
func (e *extension) handle(serve http.HandlerFunc) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.serve = serve
}

// requests returns the requests for a path so far.
func (e *extension) requests(path string) (out []*http.Request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, r := range e.seen {
		if r.URL.Path == path {
			out = append(out, r)
		}
	}
	return out
}

// openConnections returns the number of open connections.
func (e *extension) openConnections() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.conns)
}

// apiService returns an APIService for an extension server at a port of the service agg/ext.
func apiService(port int32, ca []byte) *apiregistrationv1.APIService {
	return &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: "u"},
		Spec: apiregistrationv1.APIServiceSpec{
			Group:                 gv.Group,
			Version:               gv.Version,
			GroupPriorityMinimum:  1000,
			VersionPriority:       15,
			CABundle:              ca,
			InsecureSkipTLSVerify: ca == nil,
			Service:               &apiregistrationv1.ServiceReference{Namespace: "agg", Name: "ext", Port: &port},
		},
	}
}

// register stores an APIService for an extension server and waits until it is available.
func (b *fixture) register(e *extension, ca []byte) {
	b.t.Helper()
	b.board.put(name, apiService(e.port, ca))
	b.eventually("the server is available", func() bool { return b.condition(name) == passed })
}

// passed is the condition of an available server, in the form that condition returns.
const passed = "True Passed all checks passed"
