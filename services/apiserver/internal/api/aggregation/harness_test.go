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

// board is a store of APIServices. It is the source of the watch cache.
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
		var newer []storage.Event
		for _, ev := range b.events {
			if ev.Revision > at {
				newer = append(newer, ev)
			}
		}
		at = b.revision
		moved := b.moved
		b.mu.Unlock()
		if len(newer) > 0 {
			if err := apply(storage.Batch{Events: newer, Revision: at}); err != nil {
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

// put writes an APIService. If apiService is nil, put deletes the APIService of the name.
func (b *board) put(name string, apiService *apiregistrationv1.APIService) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.revision++
	key := prefix + name
	event := storage.Event{Type: storage.Created, Key: key, Revision: b.revision, CreateRevision: b.revision}
	if previous, ok := b.objects[key]; ok {
		event.Type, event.CreateRevision = storage.Updated, previous.CreateRevision
	}
	if apiService == nil {
		event = storage.Event{Type: storage.Deleted, Key: key, Revision: b.revision}
		delete(b.objects, key)
	} else {
		event.Value, _ = json.Marshal(apiService) // marshaling this type cannot fail
		b.objects[key] = storage.KeyValue{Key: key, Value: event.Value, CreateRevision: event.CreateRevision, ModRevision: b.revision}
	}
	b.events = append(b.events, event)
	close(b.moved)
	b.moved = make(chan struct{})
}

// get returns the stored APIService of the name, or nil.
func (b *board) get(name string) *apiregistrationv1.APIService {
	b.mu.Lock()
	defer b.mu.Unlock()
	keyValue, ok := b.objects[prefix+name]
	if !ok {
		return nil
	}
	s := &apiregistrationv1.APIService{}
	_ = json.Unmarshal(keyValue.Value, s) // written by put
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

// find returns the object of a namespace and name, the error that the fixture has for it, or a
// NotFound error.
func find[T any](agg *fixture, from map[string]T, resource, namespace, name string) (T, error) {
	agg.mu.Lock()
	defer agg.mu.Unlock()
	key := namespace + "/" + name
	if err := agg.errs[resource+" "+key]; err != nil {
		var none T
		return none, err
	}
	o, ok := from[key]
	if !ok {
		return o, apierrors.NewNotFound(schema.GroupResource{Resource: resource}, name)
	}
	return o, nil
}

// start runs an aggregator until the test ends. change adjusts its configuration before; it may be
// nil. The fixture has three services: agg/ext is an external name of this machine, agg/cip and
// agg/typed have cluster IPs.
func start(t *testing.T, change func(*fixture, *aggregation.Config)) *fixture {
	t.Helper()
	agg := &fixture{
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
		Source:          agg.board,
		CurrentRevision: agg.board,
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
			return find(agg, agg.services, "services", namespace, name)
		},
	}
	config := aggregation.Config{
		Store: cache.Store(prefix),
		Decode: func(e *objects.Entry) (*apiregistrationv1.APIService, error) {
			s := &apiregistrationv1.APIService{}
			return s, json.Unmarshal(e.Stored(), s)
		},
		Local: func(gv schema.GroupVersion) bool {
			agg.mu.Lock()
			defer agg.mu.Unlock()
			agg.localCalls++
			return agg.local[gv]
		},
		Service: services.Get,
		Endpoints: func(_ context.Context, namespace, name string) (*corev1.Endpoints, error) {
			return find(agg, agg.endpoints, "endpoints", namespace, name)
		},
		Resolve: services.Resolve, Certificate: func() *tls.Certificate { return nil },
		Write: agg.write, MaxChecks: 16, MaxPages: 16,
		Metrics: aggregation.NewMetrics(agg.registry), Logger: slog.New(slog.DiscardHandler),
	}
	if change != nil {
		change(agg, &config)
	}
	agg.Aggregator = aggregation.New(config)
	agg.OnChange(func() {
		agg.mu.Lock()
		defer agg.mu.Unlock()
		agg.notifications++
	})
	running.Go(func() { _ = agg.Run(ctx) })
	agg.stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	t.Cleanup(agg.stop)
	return agg
}

// write sets the condition as the server would.
func (agg *fixture) write(_ context.Context, name string, condition apiregistrationv1.APIServiceCondition) error {
	apiService := agg.board.get(name)
	if apiService == nil {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "apiservices"}, name)
	}
	apiService.Status.Conditions = []apiregistrationv1.APIServiceCondition{condition}
	agg.mu.Lock()
	agg.written = append(agg.written, condition) // before a watcher sees it
	agg.mu.Unlock()
	agg.board.put(name, apiService)
	return nil
}

// condition returns "Status Reason Message" of an APIService.
func (agg *fixture) condition(name string) string {
	apiService := agg.board.get(name)
	if apiService == nil || len(apiService.Status.Conditions) == 0 {
		return ""
	}
	c := apiService.Status.Conditions[0]
	return string(c.Status) + " " + c.Reason + " " + c.Message
}

// eventually waits until check reports true. what describes that as a clause: "the server is
// available".
func (agg *fixture) eventually(what string, check func() bool) {
	agg.t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for !check() {
		if time.Now().After(deadline) {
			agg.t.Fatalf("not within 30s: %s", what)
		}
		time.Sleep(5 * time.Millisecond) // between polls of a condition
	}
}

// send sends a request to the handler of the group version as a user.
func (agg *fixture) send(user *request.User, r *http.Request) *httptest.ResponseRecorder {
	agg.t.Helper()
	responseRecorder := httptest.NewRecorder()
	h := agg.Handler(gv)
	if h == nil {
		agg.t.Fatal("no handler for the group version")
	}
	responseRecorder.Header().Set("Audit-Id", "audit-1")
	h.ServeHTTP(responseRecorder, r.WithContext(requesttest.WithUser(r.Context(), user)))
	return responseRecorder
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
	out := &authority{t: t}
	out.key = out.newKey()
	out.cert = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, out.cert, out.cert, out.key.Public(), out.key)
	if err != nil {
		t.Fatal(err)
	}
	out.pem = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	if out.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	return out
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

// issueServing returns a serving certificate for the service agg/ext, which apiService names.
func (a *authority) issueServing() tls.Certificate {
	a.t.Helper()
	return a.issue("ext.agg.svc", x509.ExtKeyUsageServerAuth)
}

// extension is an extension server that records its requests.
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
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return extendOn(t, listener, cert, serve)
}

// extendOn starts an extension server on a listener.
func extendOn(t *testing.T, listener net.Listener, cert tls.Certificate, serve http.HandlerFunc) *extension {
	t.Helper()
	server := &extension{serve: serve, conns: map[net.Conn]http.ConnState{}}
	server.Server = &httptest.Server{
		Listener: listener,
		Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			server.mu.Lock()
			server.seen = append(server.seen, r)
			serve := server.serve
			server.mu.Unlock()
			serve(w, r)
		})},
	}
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.Config.ConnState = func(conn net.Conn, connState http.ConnState) {
		server.mu.Lock()
		defer server.mu.Unlock()
		if connState == http.StateClosed || connState == http.StateHijacked {
			delete(server.conns, conn)
			return
		}
		server.conns[conn] = connState
	}
	server.EnableHTTP2 = true
	server.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequestClientCert}
	server.StartTLS()
	t.Cleanup(server.Close)
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	n, _ := strconv.Atoi(port)
	server.port = int32(n)
	return server
}

// handle replaces the handler of the server for requests from now on.
func (server *extension) handle(serve http.HandlerFunc) {
	server.mu.Lock()
	defer server.mu.Unlock()
	server.serve = serve
}

// requests returns the requests for a path so far.
func (server *extension) requests(path string) (out []*http.Request) {
	server.mu.Lock()
	defer server.mu.Unlock()
	for _, r := range server.seen {
		if r.URL.Path == path {
			out = append(out, r)
		}
	}
	return out
}

// openConnections returns the number of open connections.
func (server *extension) openConnections() int {
	server.mu.Lock()
	defer server.mu.Unlock()
	return len(server.conns)
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
func (agg *fixture) register(server *extension, ca []byte) {
	agg.t.Helper()
	agg.board.put(name, apiService(server.port, ca))
	agg.eventually("the server is available", func() bool { return agg.condition(name) == passed })
}

// passed is the condition of an available server, in the form that condition returns.
const passed = "True Passed all checks passed"
