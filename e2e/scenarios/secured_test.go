package scenarios

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"binnacle/e2e/harness"
)

// TestSuiteIsSecured connects to every port of the suite as `make up` runs it, with every
// certificate, and searches logs and metrics for secrets.
func TestSuiteIsSecured(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	supervisor := harness.NewProcess(t, "binnacle", harness.Binary(t, harness.Everything))
	port := harness.FreePorts(t, suiteSize)
	supervisor.Start("up", "--dir="+dir, "--port="+strconv.Itoa(port))
	waitForOutput(t, supervisor, "all services are ready")
	requests := &requester{t: t, certs: filepath.Join(dir, "certs"), first: port}
	const (
		api       = 0
		reviewer  = 1
		authority = 2
		console   = 5
	)
	for _, test := range []struct {
		identity string
		service  int
		path     string
		want     int
	}{
		// Anonymous.
		{identity: "", service: api, path: "/livez", want: 200},
		{identity: "", service: api, path: "/readyz", want: 200},
		{identity: "", service: api, path: "/healthz", want: 200},
		{identity: "", service: api, path: "/version", want: 200},
		{identity: "", service: api, path: "/metrics", want: 403},
		{identity: "", service: api, path: "/api", want: 403},
		{identity: "", service: api, path: "/debug/pprof/", want: 403},
		{identity: "", service: api, path: "/api/v1/namespaces", want: 403},
		// The suite's services, each with only the rights that it needs.
		{identity: "tokencleaner/tokencleaner-client", service: api, path: "/api/v1/namespaces/kube-system/secrets", want: 200},
		{identity: "tokencleaner/tokencleaner-client", service: api, path: "/api/v1/namespaces/default/secrets", want: 403},
		{identity: "tokencleaner/tokencleaner-client", service: api, path: "/metrics", want: 403},
		{
			identity: "bootstrapsigner/bootstrapsigner-client",
			service:  api,
			path:     "/api/v1/namespaces/kube-system/secrets",
			want:     200,
		},
		{
			identity: "bootstrapsigner/bootstrapsigner-client",
			service:  api,
			path:     "/api/v1/namespaces/kube-public/configmaps",
			want:     403,
		},
		{identity: "controllers/controllers-client", service: api, path: "/api/v1/namespaces/default/secrets", want: 200},
		{identity: "controllers/controllers-client", service: api, path: "/metrics", want: 403},
		{identity: "authn-webhook/authn-webhook-client", service: api, path: "/api/v1/pods", want: 200},
		{identity: "authn-webhook/authn-webhook-client", service: api, path: "/api/v1/configmaps", want: 403},
		{
			identity: "authz-webhook/authz-webhook-client",
			service:  api,
			path:     "/apis/rbac.authorization.k8s.io/v1/roles",
			want:     200,
		},
		{identity: "authz-webhook/authz-webhook-client", service: api, path: "/api/v1/secrets", want: 403},
		{identity: "apiserver/apiserver-webhook-client", service: api, path: "/api/v1/pods", want: 403},
		{identity: "monitoring/monitoring", service: api, path: "/metrics", want: 200},
		{identity: "monitoring/monitoring", service: api, path: "/api/v1/pods", want: 403},
		{identity: "admin/admin", service: api, path: "/api/v1/secrets", want: 200},
		{identity: "admin/admin", service: api, path: "/debug/pprof/", want: 200},
		{identity: "console/console-client", service: api, path: "/metrics", want: 200},
		{identity: "console/console-client", service: api, path: "/api/v1/pods", want: 403},
		// The console page is public. The state requires the right to read metrics.
		{identity: "", service: console, path: "/", want: 200},
		{identity: "", service: console, path: "/state", want: 401},
		{identity: "admin/admin", service: console, path: "/state", want: 200},
		{identity: "monitoring/monitoring", service: console, path: "/state", want: 200},
		{identity: "tokencleaner/tokencleaner-client", service: console, path: "/state", want: 403},
		{identity: "etcd/etcd", service: console, path: "/state", want: 401},
		// Certificates for other services are not accepted.
		{identity: "apiserver/apiserver-etcd-client", service: api, path: "/api", want: 401},
		{identity: "apiserver/apiserver-nats-client", service: api, path: "/api", want: 401},
		{identity: "apiserver/apiserver-kubelet-client", service: api, path: "/api", want: 401},
		{identity: "apiserver/apiserver-proxy-client", service: api, path: "/api", want: 401},
		{identity: "front-proxy/front-proxy-client", service: api, path: "/api", want: 401},
		{identity: "etcd/etcd", service: api, path: "/api", want: 401},
		{identity: "tokencleaner/tokencleaner", service: api, path: "/api", want: 401},
		// The webhooks accept only the API server.
		{identity: "apiserver/apiserver-webhook-client", service: reviewer, path: "review", want: 200},
		{identity: "apiserver/apiserver-webhook-client", service: authority, path: "review", want: 200},
		{identity: "admin/admin", service: reviewer, path: "review", want: 401},
		{identity: "admin/admin", service: authority, path: "review", want: 401},
		{identity: "tokencleaner/tokencleaner-client", service: reviewer, path: "review", want: 401},
		{identity: "tokencleaner/tokencleaner-client", service: authority, path: "review", want: 401},
		{identity: "etcd/etcd", service: reviewer, path: "review", want: 401},
		{identity: "", service: reviewer, path: "review", want: 401},
		{identity: "", service: authority, path: "review", want: 401},
	} {
		if got := requests.statusOf(test.identity, test.service, test.path); got != test.want {
			t.Errorf("%q at service %d, %s: got %d, want %d", test.identity, test.service, test.path, got, test.want)
		}
	}
	for i := range suiteSize {
		conn, err := tls.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port+i), &tls.Config{
			InsecureSkipVerify: true,
			MinVersion:         tls.VersionTLS10,
			MaxVersion:         tls.VersionTLS11,
		})
		if err == nil {
			conn.Close()
			t.Errorf("service %d accepts %s, want an error", i, tls.VersionName(conn.ConnectionState().Version))
		}
	}
	requests.checkNoSecrets(supervisor, harness.CLIOf(t, filepath.Join(dir, "kubeconfig")))
}

// requester sends requests to services with a certificate.
type requester struct {
	t     *testing.T
	certs string
	first int // port
}

func (k *requester) statusOf(identity string, service int, path string) int {
	k.t.Helper()
	code, _ := k.request(identity, service, path)
	return code
}

// request sends a GET to a service with a certificate, or anonymously, and returns the status code
// and body.
func (k *requester) request(identity string, service int, path string) (int, string) {
	k.t.Helper()
	client := &http.Client{
		Timeout:   10 * time.Second,
		Transport: &http.Transport{TLSClientConfig: clientTLSConfig(k.t, k.certs, "serving-ca", identity)},
	}
	defer client.CloseIdleConnections()
	url := fmt.Sprintf("https://127.0.0.1:%d", k.first+service)
	var resp *http.Response
	var err error
	switch {
	case path != "review":
		resp, err = client.Get(url + path)
	case service == 1:
		resp, err = client.Post(url+"/authenticate", "application/json", strings.NewReader(
			`{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","spec":{"token":"no-token"}}`))
	default:
		resp, err = client.Post(url+"/authorize", "application/json", strings.NewReader(
			`{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":{"user":"u","nonResourceAttributes":{"path":"/","verb":"get"}}}`))
	}
	if err != nil {
		k.t.Fatalf("%q at service %d, %s: %v", identity, service, path, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		k.t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// checkNoSecrets uses a token, a wrong token and a Secret, and searches the logs and metrics of all
// services for them.
func (k *requester) checkNoSecrets(supervisor *harness.Process, cli *harness.CLI) {
	k.t.Helper()
	const wrong, hidden = "abcdef.0123456789wrong77", "hidden-7c1f0a93"
	cli.Run(k.t, "create", "serviceaccount", "robot", "-n", "default")
	token := strings.TrimSpace(cli.Run(k.t, "create", "token", "robot", "-n", "default"))
	cli.Run(k.t, "create", "secret", "generic", "s", "-n", "default", "--from-literal=k="+hidden)
	for _, bearer := range []string{token, wrong} {
		req, err := http.NewRequestWithContext(k.t.Context(), http.MethodGet,
			fmt.Sprintf("https://127.0.0.1:%d/api", k.first), nil)
		if err != nil {
			k.t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+bearer)
		client := &http.Client{
			Timeout:   10 * time.Second,
			Transport: &http.Transport{TLSClientConfig: clientTLSConfig(k.t, k.certs, "serving-ca", ""), DisableKeepAlives: true},
		}
		resp, err := client.Do(req)
		if err != nil {
			k.t.Fatal(err)
		}
		resp.Body.Close()
		if want := map[string]int{token: 200, wrong: 401}[bearer]; resp.StatusCode != want {
			k.t.Errorf("with a token: got %d, want %d", resp.StatusCode, want)
		}
	}
	_, signature, _ := strings.Cut(token[strings.Index(token, ".")+1:], ".")
	places := map[string]string{"the log": supervisor.Log()}
	for i := range suiteSize {
		if code, text := k.request("admin/admin", i, "/metrics"); code == http.StatusOK {
			places[fmt.Sprintf("metrics of service %d", i)] = text
		}
	}
	if len(places) != suiteSize+1 {
		k.t.Errorf("got %d places to search, want %v", len(places), suiteSize+1)
	}
	for where, text := range places {
		for what, secret := range map[string]string{"token": signature, "wrong token": wrong, "secret": hidden} {
			if strings.Contains(text, secret) {
				k.t.Errorf("%s contains the %s, want no secret", where, what)
			}
		}
	}
}
