package app

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/libs/options"
	"binnacle/libs/rbac"
	"binnacle/libs/task"
	"binnacle/services/authz-webhook/internal/apitest"
)

// clients returns a CA and client certificates for names.
func clients(t *testing.T, names ...string) (ca []byte, certs map[string]tls.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	root := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "ca"},
		NotAfter:              time.Now().Add(time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	}
	sign := func(template *x509.Certificate) []byte {
		der, err := x509.CreateCertificate(rand.Reader, template, root, &key.PublicKey, key)
		if err != nil {
			t.Fatal(err)
		}
		return der
	}
	certs = map[string]tls.Certificate{}
	for i, name := range names {
		leaf := &x509.Certificate{
			SerialNumber: big.NewInt(int64(i) + 2),
			Subject:      pkix.Name{CommonName: name},
			NotAfter:     time.Now().Add(time.Hour),
			ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		}
		certs[name] = tls.Certificate{Certificate: [][]byte{sign(leaf)}, PrivateKey: key}
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: sign(root)}), certs
}

type fixture struct {
	t     *testing.T
	api   *apitest.Server
	url   string
	certs map[string]tls.Certificate
}

// start runs the service with an API server of apitest. change may change its options.
func start(t *testing.T, change func(*Options)) *fixture {
	t.Helper()
	dir := t.TempDir()
	ca, certs := clients(t, "apiserver", "other")
	_, untrusted := clients(t, "apiserver")
	certs["untrusted"] = untrusted["apiserver"]
	f := &fixture{t: t, api: apitest.New(), certs: certs}
	t.Cleanup(f.api.Close)
	caFile := filepath.Join(dir, "ca.crt")
	if err := os.WriteFile(caFile, ca, 0o600); err != nil {
		t.Fatal(err)
	}
	opts := NewOptions()
	opts.AddFlags(&options.Sections{})
	opts.Client.Master = f.api.URL
	opts.Serving.BindAddress, opts.Serving.SecurePort, opts.Serving.CertDir, opts.Serving.ClientCAFile = net.IPv4(127, 0, 0,
		1), 0, dir, caFile
	if change != nil {
		change(opts)
	}
	if err := opts.Complete(); err != nil {
		t.Fatal(err)
	}
	if errs := opts.Validate(); len(errs) > 0 {
		t.Fatal(errs)
	}
	service, rbacPolicy, err := opts.buildService(slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- service.Run(ctx, task.Task{Name: "policy", Run: rbacPolicy.Run}) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run() = %v, want no error", err)
		}
	})
	f.url = "https://" + service.Server.Addr().String()
	return f
}

// send sends a request of a client and returns the response and its body.
func (f *fixture) send(client, method, path, body string) (*http.Response, string) {
	f.t.Helper()
	config := &tls.Config{InsecureSkipVerify: true}
	if certificate, ok := f.certs[client]; ok {
		config.Certificates = []tls.Certificate{certificate}
	}
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequest(method, f.url+path, bytes.NewBufferString(body))
	if err != nil {
		f.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		f.t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	return resp, string(data)
}

// eventually waits until check returns true. condition describes it in errors.
func (f *fixture) eventually(condition string, check func() bool) {
	f.t.Helper()
	deadline, tick := time.After(20*time.Second), time.NewTicker(10*time.Millisecond)
	defer tick.Stop()
	for !check() {
		select {
		case <-deadline:
			f.t.Fatalf("timed out waiting for the condition: %s", condition)
		case <-tick.C:
		}
	}
}

// reviewBody is a review of access to pods in namespace a by alice.
const reviewBody = `{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":{"user":"alice","resourceAttributes":{"verb":"get","namespace":"a","resource":"pods"}}}`

// TestServiceDecidesForPermittedClients checks the readiness, the decisions at both paths, and the rejection of other
// callers.
func TestServiceDecidesForPermittedClients(t *testing.T) {
	fixture := start(t, func(o *Options) {
		o.Clients.Names = []string{"apiserver"}
	})
	fixture.eventually("the service is ready", func() bool { resp, _ := fixture.send("", "GET", "/readyz", ""); return resp.StatusCode == 200 })
	fixture.api.Put("roles", &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "r"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get"}}},
	})
	fixture.api.Put("rolebindings", &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "b"},
		RoleRef:    rbacv1.RoleRef{Kind: "Role", Name: "r"},
		Subjects:   []rbacv1.Subject{{Kind: "User", Name: "alice"}},
	})
	for _, path := range []string{"/", "/authorize"} {
		fixture.eventually("the access is allowed", func() bool {
			resp, body := fixture.send("apiserver", "POST", path, reviewBody)
			if _, err := rbac.ParsePosition(resp.Header.Get(rbac.PositionHeader)); resp.StatusCode != 200 || err != nil {
				t.Fatalf("%s: got %d %v %s; want 200, no error", path, resp.StatusCode, err, body)
			}
			return strings.Contains(body,
				`"allowed":true,"reason":"RBAC: allowed by RoleBinding \"b/a\" of Role \"r\" to User \"alice\""`)
		})
		for _, client := range []string{"", "other", "untrusted"} {
			if resp, body := fixture.send(client, "POST", path, reviewBody); resp.StatusCode != 401 || strings.Contains(body, "allowed") {
				t.Errorf("client %q: got %d %s; want 401 without a decision", client, resp.StatusCode, body)
			}
		}
		if resp, _ := fixture.send("apiserver", "GET", path, ""); resp.StatusCode != 405 {
			t.Errorf("GET: got %d, want 405", resp.StatusCode)
		}
	}
	if resp, body := fixture.send("", "GET", "/metrics", ""); resp.StatusCode != 200 || !strings.Contains(body,
		`authz_webhook_review_duration_seconds_count{result="allowed"} 2`) {
		t.Errorf("metrics: got status %d, want 200 with 2 allowed reviews", resp.StatusCode)
	}
}

// TestABACNeedsNoPolicyFromAPIServer checks a service that needs no policy from the API server.
func TestABACNeedsNoPolicyFromAPIServer(t *testing.T) {
	file := filepath.Join(t.TempDir(), "policies")
	if err := os.WriteFile(file,
		[]byte(`{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"user":"alice","namespace":"*","resource":"pods"}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	f := start(t, func(o *Options) { o.Modes, o.PolicyFile = []string{"ABAC"}, file })
	if resp, body := f.send("", "POST", "/", reviewBody); resp.StatusCode != 401 {
		t.Errorf("without a certificate: got %d %s, want 401", resp.StatusCode, body)
	}
	resp, body := f.send("other", "POST", "/", reviewBody)
	if resp.StatusCode != 200 || !strings.Contains(body, `"allowed":true`) || resp.Header.Get(rbac.PositionHeader) != "" {
		t.Errorf("got status %d, headers %v: %s, want 200 that allows, without a position",
			resp.StatusCode, resp.Header, body)
	}
}

// TestFeatureGatesAffectDecisionsForNodes checks that a gate is effective, other gates of a cluster are accepted, and the
// metrics list all.
func TestFeatureGatesAffectDecisionsForNodes(t *testing.T) {
	const nodes = `{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":{"user":"system:node:n","groups":["system:nodes"],"resourceAttributes":{"verb":"list","resource":"pods"%s}}}`
	const ownPods = `,"fieldSelector":{"requirements":[{"key":"spec.nodeName","operator":"In","values":["n"]}]}`
	for _, test := range []struct {
		gates   string
		wantAll bool // all pods may be listed
		wantOwn bool // the pods of the node may be listed
	}{
		{gates: "", wantAll: false, wantOwn: true},
		{gates: "kube:AuthorizeNodeWithSelectors=false,WatchList=true", wantAll: true, wantOwn: true},
		{gates: "AuthorizeWithSelectors=false", wantAll: false, wantOwn: false},
		{gates: "AuthorizeWithSelectors=false,AuthorizeNodeWithSelectors=false", wantAll: true, wantOwn: true},
	} {
		t.Run(test.gates, func(t *testing.T) {
			fixture := start(t, func(o *Options) {
				if err := o.Features.Set(test.gates); err != nil {
					t.Fatal(err)
				}
			})
			fixture.eventually("the service is ready", func() bool { resp, _ := fixture.send("", "GET", "/readyz", ""); return resp.StatusCode == 200 })
			for selector, want := range map[string]bool{"": test.wantAll, ownPods: test.wantOwn} {
				if resp, body := fixture.send("other", "POST", "/", fmt.Sprintf(nodes, selector)); resp.StatusCode != 200 ||
					strings.Contains(body, `"allowed":true`) != want {
					t.Errorf("selected by %q: got %d %s, want %v", selector, resp.StatusCode, body, want)
				}
			}
			value := 1
			if strings.Contains(test.gates, "AuthorizeWithSelectors=false") {
				value = 0
			}
			if _, body := fixture.send("", "GET", "/metrics", ""); !strings.Contains(body,
				fmt.Sprintf(`kubernetes_feature_enabled{name="AuthorizeWithSelectors",stage="BETA"} %d`, value)) {
				t.Errorf("got metrics %.300s, want the gate AuthorizeWithSelectors at %d", body, value)
			}
		})
	}
}

// TestValidateRejectsInvalidOptions checks the errors for invalid flags.
func TestValidateRejectsInvalidOptions(t *testing.T) {
	for want, change := range map[string]func(*Options){
		"must name at least one mode":  func(opts *Options) { opts.Modes = nil },
		`"Webhook" is not one of`:      func(opts *Options) { opts.Modes = []string{"Webhook"} },
		`"RBAC" is given twice`:        func(opts *Options) { opts.Modes = []string{"RBAC", "RBAC"} },
		"feature is locked to true":    func(opts *Options) { _ = opts.Features.Set("ServiceAccountTokenJTI=false") },
		"go together":                  func(opts *Options) { opts.PolicyFile = "x" },
		"--client-ca-file is required": func(*Options) {},
	} {
		opts := NewOptions()
		change(opts)
		text := ""
		for _, err := range opts.Validate() {
			text += err.Error() + "\n"
		}
		if !strings.Contains(text, want) {
			t.Errorf("got %q, want %s", text, want)
		}
	}
}

// TestRunFailsWithUnusableFiles checks that the service does not start with unusable files or addresses.
func TestRunFailsWithUnusableFiles(t *testing.T) {
	for want, change := range map[string]func(*Options){
		"/no/such/policies": func(opts *Options) { opts.Modes, opts.PolicyFile = []string{"ABAC"}, "/no/such/policies" },
		"/no/such/cert":     func(opts *Options) { opts.Serving.CertFile, opts.Serving.KeyFile = "/no/such/cert", "/no/such/key" },
		"%zz":               func(opts *Options) { opts.Client.Master = "http://%zz" },
	} {
		opts := NewOptions()
		opts.AddFlags(&options.Sections{})
		opts.Client.Master, opts.Clients.AnyClient = "http://127.0.0.1:1", true
		opts.Serving.BindAddress, opts.Serving.SecurePort, opts.Serving.CertDir = net.IPv4(127, 0, 0, 1), 0, t.TempDir()
		change(opts)
		if err := opts.Complete(); err != nil {
			t.Fatal(err)
		}
		if err := opts.Run(t.Context(), slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
