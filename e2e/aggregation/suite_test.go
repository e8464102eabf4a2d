package aggregation

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"binnacle/e2e/harness"
)

// suite is one or more API servers of a cluster with an extension server behind a proxy.
type suite struct {
	t              *testing.T
	pki            *harness.PKI
	servers        []*harness.Server
	client         *http.Client
	proxy          *harness.Proxy
	extension      *harness.Process
	extensionFlags []string
	serviceChanges int
	extensionCert  harness.Pair // of the extension server, which reloads its files
}

const (
	widgets     = "/apis/ext.example.com/v1/namespaces/default/widgets"
	apiServices = "/apis/apiregistration.k8s.io/v1/apiservices"
)

// start starts the replicas, and the extension server, which is registered through the first.
func start(t *testing.T, replicas int, flags ...string) *suite {
	t.Helper()
	started := &suite{t: t, pki: harness.NewPKI(t)}
	front := started.pki.Client("front-proxy-client")
	flags = append(flags,
		"--requestheader-client-ca-file="+started.pki.CA, "--requestheader-allowed-names=front-proxy-client",
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group", "--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file="+front.CertFile, "--proxy-client-key-file="+front.KeyFile)
	if replicas > 1 {
		flags = append(flags, "--etcd-servers="+harness.StartEtcd(t).Endpoint)
	}
	admin := started.pki.Client("admin", harness.SystemMasters)
	for range replicas {
		started.servers = append(started.servers, harness.StartServerWith(t, started.pki, admin, flags...))
	}
	started.client = started.newClient(admin)
	started.startExtension()
	return started
}

// newClient returns a client with a certificate.
func (s *suite) newClient(p harness.Pair) *http.Client {
	s.t.Helper()
	pair, err := tls.X509KeyPair(p.Cert, p.Key)
	if err != nil {
		s.t.Fatal(err)
	}
	client := &http.Client{
		Timeout:   30 * time.Second,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{pair}}},
	}
	s.t.Cleanup(client.CloseIdleConnections)
	return client
}

// withUser returns the suite with a client of an ordinary user with the right to read everything.
func (s *suite) withUser(user string) *suite {
	s.t.Helper()
	s.mustRequest("POST", "/apis/rbac.authorization.k8s.io/v1/clusterroles",
		`{"metadata":{"name":"`+user+`"},"rules":[{"apiGroups":["*"],"resources":["*"],"verbs":["get","list","watch"]}]}`)
	s.mustRequest("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
		`{"metadata":{"name":"`+user+
			`"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"`+user+`"},
		"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"`+user+`"}]}`)
	copied := *s
	copied.client = s.newClient(s.pki.Client(user))
	return &copied
}

// startExtension starts the extension server with the usual rights of such servers, registers it,
// and waits until all replicas send requests to it.
func (s *suite) startExtension() {
	s.t.Helper()
	s.mustRequest("POST", "/apis/rbac.authorization.k8s.io/v1/namespaces/kube-system/rolebindings",
		roleBinding("Role", "extension-apiserver-authentication-reader"))
	s.mustRequest("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
		roleBinding("ClusterRole", "system:auth-delegator"))
	port := harness.FreePort(s.t)
	s.extensionCert = s.pki.ServingFor("extension", "ext.default.svc")
	s.extension = harness.NewProcess(s.t, "extension", harness.Binary(s.t, harness.Extension))
	s.extensionFlags = []string{
		fmt.Sprintf("--listen=127.0.0.1:%d", port), "--cert=" + s.extensionCert.CertFile, "--key=" + s.extensionCert.KeyFile,
		"--kubeconfig=" + s.servers[0].Kubeconfig(s.pki.Client("widget-server",
			"system:serviceaccounts")), // like a server that runs in a pod
	}
	s.extension.Start(s.extensionFlags...)
	harness.Eventually(s.t, 30*time.Second, "ready", func() error {
		resp, err := s.client.Get(fmt.Sprintf("https://127.0.0.1:%d/readyz", port))
		if err != nil {
			return err
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return errors.New(resp.Status)
		}
		return nil
	})
	s.proxy = harness.StartProxy(s.t, fmt.Sprintf("127.0.0.1:%d", port))
	data, err := os.ReadFile(s.pki.CA)
	if err != nil {
		s.t.Fatal(err)
	}
	s.mustRequest("POST", "/api/v1/namespaces/default/services",
		`{"metadata":{"name":"ext"},"spec":{"type":"ExternalName","externalName":"localhost"}}`)
	for _, gv := range []string{"ext.example.com v1", "metrics.k8s.io v1beta1"} {
		group, version, _ := strings.Cut(gv, " ")
		s.mustRequest("POST", apiServices,
			fmt.Sprintf(`{"metadata":{"name":"%[2]s.%[1]s"},"spec":{"group":%[1]q,"version":%[2]q,"groupPriorityMinimum":1000,"versionPriority":15,"caBundle":%[3]q,
			"service":{"namespace":"default","name":"ext","port":%[4]s}}}`, group, version,
				base64.StdEncoding.EncodeToString(data), s.proxy.Addr[strings.LastIndex(s.proxy.Addr, ":")+1:]))
		for i := range s.servers {
			harness.Eventually(s.t, 40*time.Second, "available", func() error { return s.checkOK(i, "/apis/"+group+"/"+version) })
		}
	}
}

// roleBinding returns a binding of a role to the user of the extension server.
func roleBinding(kind, name string) string {
	return fmt.Sprintf(`{"metadata":{"name":"widget-server"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":%q,"name":%q},
		"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"widget-server"}]}`, kind, name)
}

// sendRequest sends a request to a replica.
func (s *suite) sendRequest(ctx context.Context, replica int, method, path, body string) (int, string, error) {
	r, err := http.NewRequestWithContext(ctx, method, s.servers[replica].URL+path, bytes.NewBufferString(body))
	if err != nil {
		return 0, "", err
	}
	r.Header.Set("Content-Type", "application/json")
	resp, err := s.client.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b), err
}

// mustRequest sends a request to the first replica, which must succeed, and returns the response.
func (s *suite) mustRequest(method, path, body string) string {
	s.t.Helper()
	code, response, err := s.sendRequest(s.t.Context(), 0, method, path, body)
	if err != nil || code >= 300 {
		s.t.Fatalf("%s %s: %d %s %v", method, path, code, response, err)
	}
	return response
}

// checkOK returns an error unless a replica returns 200 for a GET.
func (s *suite) checkOK(replica int, path string) error {
	code, body, err := s.sendRequest(s.t.Context(), replica, "GET", path, "")
	if err == nil && code != http.StatusOK {
		err = fmt.Errorf("%s: %d %.300s", path, code, body)
	}
	return err
}

// probeAvailability makes all replicas check the availability of the extension server at once, by a
// change of its service.
func (s *suite) probeAvailability() {
	s.t.Helper()
	s.serviceChanges++
	s.mustRequest("PUT", "/api/v1/namespaces/default/services/ext",
		fmt.Sprintf(`{"metadata":{"name":"ext","labels":{"probes":"%d"}},"spec":{"type":"ExternalName","externalName":"localhost"}}`, s.serviceChanges))
}

// availableCondition returns the availability condition of the widgets' APIService from a replica.
func (s *suite) availableCondition(replica int) string {
	_, body, _ := s.sendRequest(s.t.Context(), replica, "GET", apiServices+"/v1.ext.example.com", "")
	var test struct {
		Status struct{ Conditions []struct{ Status string } }
	}
	if json.Unmarshal([]byte(body), &test) != nil || len(test.Status.Conditions) != 1 {
		return ""
	}
	return test.Status.Conditions[0].Status
}
