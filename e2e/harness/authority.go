package harness

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

const (
	// suiteGroup is the group of the suite's own services, and suiteUser how
	// their names begin.
	suiteGroup = "system:binnacle"
	suiteUser  = "system:binnacle:"
)

// Authority is a service that an API server asks, in a process of its own.
type Authority struct {
	*Process
	Addr   string // where it listens, host:port
	client *http.Client
	args   []string
}

// NewAuthority prepares a service that follows a server, and answers that server
// alone.
func NewAuthority(t testing.TB, s *Server, p Program, flags ...string) *Authority {
	t.Helper()
	port, serving := FreePort(t), s.PKI.Serving(string(p))
	a := &Authority{
		Process: NewProcess(t, string(p), Binary(t, p)), Addr: fmt.Sprintf("127.0.0.1:%d", port),
		client: &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true,
		}},
	}
	a.args = append([]string{
		"--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port),
		"--tls-cert-file=" + serving.CertFile, "--tls-private-key-file=" + serving.KeyFile,
		"--client-ca-file=" + s.PKI.CA, "--allowed-client-names=" + suiteUser + "apiserver",
		"--kubeconfig=" + s.Kubeconfig(s.PKI.Client(suiteUser+string(p), suiteGroup)),
	}, flags...)
	return a
}

// Start runs the service, again if it ran before, until it is ready.
func (a *Authority) Start() {
	a.t.Helper()
	a.Process.Start(a.args...)
	a.waitUntil("ready", func() error { return expectOK(a.client, "https://"+a.Addr+"/readyz") })
}

// WithAuthorizationConfig lets the server decide by an AuthorizationConfiguration
// in which KUBECONFIG stands for a file by which it reaches the service at addr.
func WithAuthorizationConfig(addr, content string) Option {
	return func(s *Server) {
		file := filepath.Join(s.t.TempDir(), "authorization.yaml")
		if err := os.WriteFile(file, []byte(strings.ReplaceAll(content, "KUBECONFIG", s.webhookKubeconfig(addr))), 0o600); err != nil {
			s.t.Fatal(err)
		}
		s.drop("--authorization-mode")
		s.args = append(s.args, "--authorization-config="+file)
	}
}

// WithAccessWebhook lets the server ask the service at addr alone who may do what.
func WithAccessWebhook(addr string) Option {
	return func(s *Server) {
		s.drop("--authorization-mode")
		s.args = append(s.args, "--authorization-mode=Webhook", "--authorization-webhook-version=v1", "--authorization-webhook-config-file="+s.webhookKubeconfig(addr))
	}
}

// drop takes a flag away.
func (s *Server) drop(flag string) {
	s.args = slices.DeleteFunc(s.args, func(a string) bool { return a == flag || strings.HasPrefix(a, flag+"=") })
}

// webhookKubeconfig is how the server reaches a service that it asks.
func (s *Server) webhookKubeconfig(addr string) string {
	s.t.Helper()
	who := s.PKI.Client(suiteUser+"apiserver", suiteGroup)
	c := clientcmdapi.NewConfig()
	c.Clusters["e2e"] = &clientcmdapi.Cluster{Server: "https://" + addr, CertificateAuthority: s.PKI.CA}
	c.AuthInfos["e2e"] = &clientcmdapi.AuthInfo{ClientCertificate: who.CertFile, ClientKey: who.KeyFile}
	c.Contexts["e2e"] = &clientcmdapi.Context{Cluster: "e2e", AuthInfo: "e2e"}
	c.CurrentContext = "e2e"
	path := filepath.Join(s.t.TempDir(), "webhook.kubeconfig")
	if err := clientcmd.WriteToFile(*c, path); err != nil {
		s.t.Fatal(err)
	}
	return path
}

// Trust lets the service, before it starts, be asked by a server that it does not
// follow.
func (a *Authority) Trust(s *Server) {
	a.t.Helper()
	serving := s.PKI.Serving(a.name)
	a.args = append(a.args, "--tls-cert-file="+serving.CertFile, "--tls-private-key-file="+serving.KeyFile, "--client-ca-file="+s.PKI.CA)
}
