package app

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"binnacle/deploy/certs"
	"binnacle/libs/bootstraptoken"
	"binnacle/libs/oidctoken/oidctest"
	"binnacle/libs/satoken"
	"binnacle/services/authn-webhook/internal/apitest"
)

// files contains certificates and keys for all tests, as creating them is slow. TestMain sets it.
var files certs.Layout

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "authn-webhook")
	if err == nil {
		_, err = certs.Ensure(certs.Options{Dir: dir})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	files = certs.Layout{Dir: dir}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		os.RemoveAll(dir)
		os.Exit(code)
	}))
}

const (
	issuer = "https://kubernetes.default.svc"
	v1     = "authentication.k8s.io/v1"
)

// fixture is a running service with its API server.
type fixture struct {
	t      *testing.T
	api    *apitest.Server
	files  certs.Layout
	dir    string // the files of the test
	url    string
	client *http.Client
	logs   *safeBuffer
}

// safeBuffer is a buffer for several goroutines.
type safeBuffer struct {
	mu     sync.Mutex // leaf lock
	buffer bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.String()
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{t: t, api: apitest.New(t), files: files, dir: t.TempDir(), logs: &safeBuffer{}}
	f.client = f.clientWith(certs.Pair{})
	return f
}

// clientWith returns a client that presents a certificate, if any.
func (f *fixture) clientWith(pair certs.Pair) *http.Client {
	f.t.Helper()
	ca, err := os.ReadFile(f.files.CA(certs.ServingCA).Cert)
	if err != nil {
		f.t.Fatal(err)
	}
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	config.RootCAs.AppendCertsFromPEM(ca)
	if pair.Cert != "" {
		certificate, err := tls.LoadX509KeyPair(pair.Cert, pair.Key)
		if err != nil {
			f.t.Fatal(err)
		}
		// The certificate is presented whatever the server requests.
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &certificate, nil }
	}
	transport := &http.Transport{TLSClientConfig: config}
	f.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// options returns the defaults with a free port.
func (f *fixture) options() *Options {
	opts := NewOptions()
	opts.Serving.BindAddress, opts.Serving.SecurePort = net.IPv4(127, 0, 0, 1), 0
	opts.Serving.CertFile, opts.Serving.KeyFile = f.files.Serving(Name).Cert, f.files.Serving(Name).Key
	opts.Client.Master = f.api.URL()
	opts.Clients.AnyClient = true
	return opts
}

// run starts a service that runs until the test ends, and waits until it is ready.
func (f *fixture) run(opts *Options) {
	f.t.Helper()
	if err := errors.Join(append(opts.Validate(), opts.Complete())...); err != nil {
		f.t.Fatal(err)
	}
	service, err := opts.buildService(slog.New(slog.NewTextHandler(f.logs, &slog.HandlerOptions{Level: slog.LevelDebug})))
	if err != nil {
		f.t.Fatal(err)
	}
	f.url = "https://" + service.Server.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- service.run(ctx) }()
	f.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			f.t.Errorf("Run() = %v, want no error", err)
		}
	})
	f.eventually(func() bool { code, _ := f.get("/readyz"); return code == http.StatusOK })
}

func (f *fixture) eventually(condition func() bool) {
	f.t.Helper()
	if err := wait.PollUntilContextTimeout(f.t.Context(), 2*time.Millisecond, 20*time.Second, true,
		func(context.Context) (bool, error) { return condition(), nil }); err != nil {
		f.t.Fatalf("the condition is not met: %v\n%s", err, f.logs)
	}
}

func (f *fixture) get(path string) (int, string) {
	f.t.Helper()
	resp, err := f.client.Get(f.url + path)
	if err != nil {
		f.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// post sends a review and returns the status and the body of the response.
func (f *fixture) post(client *http.Client, path, version, token string, audiences ...string) (int, string) {
	f.t.Helper()
	body, err := json.Marshal(map[string]any{
		"apiVersion": version, "kind": "TokenReview", "spec": map[string]any{"token": token, "audiences": audiences},
	})
	if err != nil {
		f.t.Fatal(err)
	}
	resp, err := client.Post(f.url+path, "application/json", bytes.NewReader(body))
	if err != nil {
		f.t.Fatal(err)
	}
	defer resp.Body.Close()
	response, err := io.ReadAll(resp.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	return resp.StatusCode, string(response)
}

// review returns the result of a review of a token: the user name, "unknown", the error of the
// review, or the status code of another response than 200.
func (f *fixture) review(token string, audiences ...string) string {
	f.t.Helper()
	code, response := f.post(f.client, "/", v1, token, audiences...)
	if code != http.StatusOK {
		return fmt.Sprint(code)
	}
	var tokenReview authenticationv1.TokenReview
	if err := json.Unmarshal([]byte(response), &tokenReview); err != nil {
		f.t.Fatal(err)
	}
	switch {
	case tokenReview.Status.Authenticated:
		return tokenReview.Status.User.Username
	case tokenReview.Status.Error == "":
		return "unknown"
	}
	return tokenReview.Status.Error
}

func (f *fixture) write(name, content string) string {
	f.t.Helper()
	file := filepath.Join(f.dir, name)
	if err := errors.Join(os.WriteFile(file+".next", []byte(content), 0o600), os.Rename(file+".next", file)); err != nil {
		f.t.Fatal(err)
	}
	return file
}

func bootstrapSecret(id, secret string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: bootstraptoken.Namespace, Name: bootstraptoken.SecretName(id), UID: "1"},
		Type:       bootstraptoken.SecretType,
		Data: map[string][]byte{
			bootstraptoken.KeyID:             []byte(id),
			bootstraptoken.KeySecret:         []byte(secret),
			bootstraptoken.KeyAuthentication: []byte("true"),
		},
	}
}

func serviceAccount(uid string) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default",
		Name:      "robot",
		UID:       types.UID("uid-" + uid),
	}}
}

// signed returns a token of the service account.
func (f *fixture) signed(issuer string, binding satoken.Binding, audiences ...string) string {
	f.t.Helper()
	key, err := satoken.LoadPrivateKey(f.files.ServiceAccountKey())
	if err != nil {
		f.t.Fatal(err)
	}
	signer, err := satoken.NewSigner(issuer, key)
	if err != nil {
		f.t.Fatal(err)
	}
	binding.Namespace, binding.ServiceAccount = "default", satoken.Ref{Name: "robot", UID: "uid-1"}
	token, _, err := signer.Sign(satoken.Request{Binding: binding, Audiences: audiences, IssuedAt: time.Now(), Lifetime: time.Hour})
	if err != nil {
		f.t.Fatal(err)
	}
	return token
}

// optionsWithAllTokens returns options with every kind of token.
func (f *fixture) optionsWithAllTokens(provider *oidctest.Provider) *Options {
	options := f.options()
	options.Tokens.File = f.write("tokens.csv", "static-token,carol,3,\"dev,ops\"\nof-the-suite,system:binnacle:apiserver,4\n")
	options.Tokens.BootstrapTokens = true
	options.Tokens.ServiceAccounts.Issuers = []string{issuer}
	options.Tokens.ServiceAccounts.KeyFiles = []string{f.files.ServiceAccountPublicKey()}
	oidc := options.Tokens.JWT.OIDC
	oidc.IssuerURL, oidc.ClientID, oidc.UsernamePrefix = provider.URL(), oidctest.ClientID, "oidc:"
	oidc.CAFile = f.write("oidc-ca.crt", provider.CA())
	return options
}
