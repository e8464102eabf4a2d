package build

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"binnacle/libs/options"
	"binnacle/services/apiserver/internal/admission/plugins/serviceaccount"
	"binnacle/services/apiserver/internal/config"
)

// testServer is a running server and a client with an administrator's certificate.
type testServer struct {
	t      *testing.T
	server *apiServer
	// options are those that the server was started with.
	options *config.Options
	url     string
	client  *http.Client
	// namespace is the namespace of the test on the shared server.
	namespace string
	// stop ends the server before the end of the test.
	stop func()
}

// testOptions returns options that keep all files in a directory.
func testOptions(t *testing.T, dir string) *config.Options {
	t.Helper()
	options, _, err := newTestOptions(dir)
	if err != nil {
		t.Fatal(err)
	}
	return options
}

// newTestOptions also returns the certificate of an administrator.
func newTestOptions(dir string) (*config.Options, tls.Certificate, error) {
	pair, err := servingPair()
	if err != nil {
		return nil, tls.Certificate{}, err
	}
	for name, content := range pair {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			return nil, tls.Certificate{}, err
		}
	}
	options := localOptions(dir)
	options.Serving.ClientCAFile = filepath.Join(dir, "ca.crt")
	ca, admin, err := newClientPair()
	if err != nil {
		return nil, admin, err
	}
	return options, admin, os.WriteFile(options.Serving.ClientCAFile, ca, 0o600)
}

// servingPair returns the files of a self-signed serving certificate, by name. Servers have copies
// of it, because generating an RSA key takes a third of the time of a server's start.
var servingPair = sync.OnceValues(func() (map[string][]byte, error) {
	dir, err := os.MkdirTemp("", "pair")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	o := localOptions(dir)
	if err := o.Complete(); err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	for _, path := range []string{o.Serving.CertFile, o.Serving.KeyFile} {
		if files[filepath.Base(path)], err = os.ReadFile(path); err != nil {
			return nil, err
		}
	}
	return files, nil
})

// localOptions returns options of a server with a store in memory and a free port of the loopback
// interface.
func localOptions(dir string) *config.Options {
	o := config.NewOptions()
	o.AddFlags(&options.Sections{})
	o.Serving.BindAddress = net.IPv4(127, 0, 0, 1)
	o.Serving.SecurePort = 0
	o.Serving.CertDir = dir
	o.Etcd.Backend = config.BackendMemory
	o.Host = fmt.Sprintf("host-%d", hosts.Add(1))
	return o
}

// onEtcd selects the embedded etcd, with its data in a directory of the test.
func onEtcd(t *testing.T) func(*config.Options) {
	dir := t.TempDir()
	return func(options *config.Options) { options.Etcd.Backend, options.Etcd.DataDir = config.BackendEtcd, dir }
}

// hosts counts the servers of the tests. Each has its own hostname, so that replicas have different
// identities.
var hosts atomic.Int64

// startServer starts a server and waits until it is ready. Its store is in memory unless change says
// otherwise.
func startServer(t *testing.T, change func(*config.Options)) *testServer {
	t.Helper()
	api := startUnreadyServer(t, change)
	var ready apiResponse
	defer func() {
		if ready.code != http.StatusOK {
			t.Logf("readyz: %d %s", ready.code, ready.body)
		}
	}()
	api.waitUntil("ready", func() bool {
		ready = api.get("/readyz?verbose")
		return ready.code == http.StatusOK
	})
	return api
}

// startUnreadyServer starts a server without waiting until it is ready.
func startUnreadyServer(t *testing.T, change func(*config.Options)) *testServer {
	t.Helper()
	options, admin, err := newTestOptions(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	// No controller creates the service accounts that pods need.
	options.Admission.Disable = []string{serviceaccount.Name}
	if change != nil {
		change(options)
	}
	api, stop, err := runServer(options, admin)
	if err != nil {
		t.Fatal(err)
	}
	api.t, api.stop = t, sync.OnceFunc(func() {
		if err := stop(); err != nil {
			t.Errorf("the server ended with error %v", err)
		}
	})
	t.Cleanup(api.stop)
	return api
}

// runServer runs a server until stop is called.
func runServer(options *config.Options, admin tls.Certificate) (api *testServer, stop func() error, err error) {
	if err := options.Complete(); err != nil {
		return nil, nil, err
	}
	if err := errors.Join(options.Validate()...); err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	life := &lifecycle{}
	apiServer, err := build(ctx, options, slog.New(slog.DiscardHandler), life)
	if err != nil {
		cancel()
		life.close()
		return nil, nil, err
	}
	done := make(chan error, 1)
	go func() { done <- life.run(ctx) }()
	transport := &http.Transport{
		TLSClientConfig:    &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{admin}},
		ForceAttemptHTTP2:  true,
		DisableCompression: true,
	}
	api = &testServer{
		server:  apiServer,
		options: options,
		url:     "https://" + apiServer.listener.server.Addr().String(),
		client:  &http.Client{Transport: transport, Timeout: 30 * time.Second},
	}
	return api, func() error {
		transport.CloseIdleConnections()
		cancel()
		err := <-done
		life.close()
		return err
	}, nil
}

// buildAndRelease builds a server that does not run, and returns the error.
func buildAndRelease(ctx context.Context, options *config.Options, log *slog.Logger) error {
	life := &lifecycle{}
	defer life.close()
	_, err := build(ctx, options, log, life)
	return err
}

// clientPair creates a CA and a client certificate in system:masters.
func clientPair(t *testing.T) ([]byte, tls.Certificate) {
	t.Helper()
	ca, admin, err := newClientPair()
	if err != nil {
		t.Fatal(err)
	}
	return ca, admin
}

// newClientPair returns a CA certificate in PEM and a client certificate that it signed.
func newClientPair() ([]byte, tls.Certificate, error) {
	var none tls.Certificate
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, none, err
	}
	certificate := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "ca"},
		NotAfter:              time.Now().Add(time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2),
		Subject:      pkix.Name{CommonName: "admin", Organization: []string{"system:masters"}},
		NotAfter:     time.Now().Add(time.Hour),
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	caDER, err := x509.CreateCertificate(rand.Reader, certificate, certificate, &key.PublicKey, key)
	if err != nil {
		return nil, none, err
	}
	leafDER, err := x509.CreateCertificate(rand.Reader, leaf, certificate, &key.PublicKey, key)
	if err != nil {
		return nil, none, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: caDER}), tls.Certificate{
		Certificate: [][]byte{leafDER},
		PrivateKey:  key,
	}, nil
}

// waitUntil polls check until it returns true. It fails the test after 2 minutes.
func (api *testServer) waitUntil(condition string, check func() bool) {
	api.t.Helper()
	deadline := time.Now().Add(2 * time.Minute)
	for !check() {
		if time.Now().After(deadline) {
			api.t.Fatalf("not %s within 2 minutes", condition)
		}
		time.Sleep(10 * time.Millisecond) // between polls of a condition
	}
}

// apiResponse is a complete response of the server.
type apiResponse struct {
	code   int
	header http.Header
	body   []byte
}

// object returns the decoded body.
func (r apiResponse) object() (o map[string]any) {
	_ = json.Unmarshal(r.body, &o)
	return o
}

// field returns the value at a path of the decoded body, or nil if there is none.
func (r apiResponse) field(path ...string) any {
	var value any = r.object()
	for _, key := range path {
		object, _ := value.(map[string]any)
		value = object[key]
	}
	return value
}

func (r apiResponse) resourceVersion() string {
	return fmt.Sprint(r.field("metadata", "resourceVersion"))
}

// send sends a request. header alternates names and values. An error of the connection becomes the
// body of a response with code 0.
func (api *testServer) send(method, path, body string, header ...string) apiResponse {
	api.t.Helper()
	req, err := http.NewRequest(method, api.url+path, bytes.NewBufferString(body))
	if err != nil {
		api.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	httpResponse, err := api.client.Do(req)
	if err != nil {
		return apiResponse{body: []byte(err.Error())}
	}
	defer httpResponse.Body.Close()
	content, err := io.ReadAll(httpResponse.Body)
	if err != nil {
		api.t.Errorf("%s %s: %v", method, path, err)
	}
	return apiResponse{httpResponse.StatusCode, httpResponse.Header, content}
}

func (api *testServer) get(path string, header ...string) apiResponse {
	api.t.Helper()
	return api.send(http.MethodGet, path, "", header...)
}

// mustSend sends a request. It fails the test unless the response has the status code.
func (api *testServer) mustSend(code int, method, path, body string, header ...string) apiResponse {
	api.t.Helper()
	response := api.send(method, path, body, header...)
	if response.code != code {
		api.t.Fatalf("%s %s: got %d, want %d: %s", method, path, response.code, code, response.body)
	}
	return response
}

const configMaps = "/api/v1/namespaces/default/configmaps"

// configMap returns a config map. data alternates keys and values.
func configMap(name string, data ...string) string {
	values := map[string]string{}
	for i := 0; i+1 < len(data); i += 2 {
		values[data[i]] = data[i+1]
	}
	b, _ := json.Marshal(map[string]any{
		"apiVersion": "v1",
		"kind":       "ConfigMap",
		"metadata":   map[string]any{"name": name},
		"data":       values,
	})
	return string(b)
}

const mergePatch = "application/merge-patch+json"
