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
	// suiteGroup is the group of the suite's services, and suiteUser the prefix of their user
	// names.
	suiteGroup = "system:binnacle"
	suiteUser  = "system:binnacle:"
)

// Authority is a webhook service that an API server calls, in its own process.
type Authority struct {
	*Process
	Addr   string // where it listens, host:port
	client *http.Client
	args   []string
}

// NewAuthority prepares a service that uses server and accepts only server as a client.
func NewAuthority(t testing.TB, server *Server, program Program, flags ...string) *Authority {
	t.Helper()
	port, serving := FreePort(t), server.PKI.Serving(string(program))
	authority := &Authority{
		Process: NewProcess(t, string(program), Binary(t, program)), Addr: fmt.Sprintf("127.0.0.1:%d", port),
		client: &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true,
		}},
	}
	authority.args = append([]string{
		"--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port),
		"--tls-cert-file=" + serving.CertFile, "--tls-private-key-file=" + serving.KeyFile,
		"--client-ca-file=" + server.PKI.CA, "--allowed-client-names=" + suiteUser + "apiserver",
		"--kubeconfig=" + server.Kubeconfig(server.PKI.Client(suiteUser+string(program), suiteGroup)),
	}, flags...)
	return authority
}

// Start starts or restarts the service and waits until it is ready.
func (a *Authority) Start() {
	a.t.Helper()
	a.Process.Start(a.args...)
	a.waitUntil("ready", func() error { return expectOK(a.client, "https://"+a.Addr+"/readyz") })
}

// WithAuthorizationConfig makes the server use an AuthorizationConfiguration. KUBECONFIG in its
// content stands for the path of a kubeconfig for the service at addr.
func WithAuthorizationConfig(addr, content string) Option {
	return func(server *Server) {
		file := filepath.Join(server.t.TempDir(), "authorization.yaml")
		if err := os.WriteFile(file, []byte(strings.ReplaceAll(content, "KUBECONFIG", server.webhookKubeconfig(addr))),
			0o600); err != nil {
			server.t.Fatal(err)
		}
		server.removeFlag("--authorization-mode")
		server.args = append(server.args, "--authorization-config="+file)
	}
}

// WithAccessWebhook makes the server authorize requests only with the service at addr.
func WithAccessWebhook(addr string) Option {
	return func(s *Server) {
		s.removeFlag("--authorization-mode")
		s.args = append(s.args, "--authorization-mode=Webhook", "--authorization-webhook-version=v1",
			"--authorization-webhook-config-file="+s.webhookKubeconfig(addr))
	}
}

// removeFlag removes a flag.
func (s *Server) removeFlag(flag string) {
	s.args = slices.DeleteFunc(s.args, func(a string) bool { return a == flag || strings.HasPrefix(a, flag+"=") })
}

// webhookKubeconfig writes the server's kubeconfig for the webhook service at addr and returns its
// path.
func (s *Server) webhookKubeconfig(addr string) string {
	s.t.Helper()
	client := s.PKI.Client(suiteUser+"apiserver", suiteGroup)
	config := clientcmdapi.NewConfig()
	config.Clusters["e2e"] = &clientcmdapi.Cluster{Server: "https://" + addr, CertificateAuthority: s.PKI.CA}
	config.AuthInfos["e2e"] = &clientcmdapi.AuthInfo{ClientCertificate: client.CertFile, ClientKey: client.KeyFile}
	config.Contexts["e2e"] = &clientcmdapi.Context{Cluster: "e2e", AuthInfo: "e2e"}
	config.CurrentContext = "e2e"
	path := filepath.Join(s.t.TempDir(), "webhook.kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		s.t.Fatal(err)
	}
	return path
}

// AllowServer makes the service accept requests of s although it reads objects from another server.
// Call it before Start.
func (a *Authority) AllowServer(s *Server) {
	a.t.Helper()
	serving := s.PKI.Serving(a.name)
	a.args = append(a.args, "--tls-cert-file="+serving.CertFile, "--tls-private-key-file="+serving.KeyFile,
		"--client-ca-file="+s.PKI.CA)
}
