package harness

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// ServiceRange is the service cluster IP range of the servers.
const ServiceRange = "10.0.0.0/24"

// SystemMasters is the group with all rights.
const SystemMasters = "system:masters"

// HTTP2Env is an environment variable with the value of --http2-implementation for all servers.
const HTTP2Env = "BINNACLE_HTTP2"

const protobufType = "application/vnd.kubernetes.protobuf"

// Server is an API server in its own process.
type Server struct {
	*Process
	URL   string
	PKI   *PKI
	Admin Pair // of a user in SystemMasters
	// Signer is the certificate whose key signs service account tokens.
	Signer Pair
	args   []string
	// needsServiceAccounts enables the admission plugin ServiceAccount.
	needsServiceAccounts bool
}

// Option changes the start of a server.
type Option func(*Server)

// WithEtcd makes the server use an etcd process instead of the embedded etcd.
func WithEtcd(etcd *Etcd) Option {
	return WithFlags("--etcd-servers=" + etcd.Endpoint)
}

// WithFlags adds flags.
func WithFlags(flags ...string) Option {
	return func(s *Server) { s.args = append(s.args, flags...) }
}

// WithBinary runs another binary of the server.
func WithBinary(path string) Option { return func(s *Server) { s.path = path } }

// Emulated runs the server's program for another architecture in an emulator.
func Emulated(emulator, program string, args ...string) Option {
	return func(s *Server) {
		s.path = emulator
		s.args = append(append([]string{program}, args...), s.args...)
	}
}

// WithServiceAccounts enables the admission plugin that assigns service accounts to pods. The test
// must create these accounts. Without this option pods need none, as under envtest.
func WithServiceAccounts() Option { return func(s *Server) { s.needsServiceAccounts = true } }

// ServiceAccountIssuer is the issuer and the audience of service account tokens.
const ServiceAccountIssuer = "https://kubernetes.default.svc"

// StartServer starts an API server and waits until it is ready.
func StartServer(t testing.TB, options ...Option) *Server {
	t.Helper()
	pki := NewPKI(t)
	return startServer(t, pki, pki.Client("e2e-admin", SystemMasters), pki.Signer("tokens"), options)
}

// StartReplica starts another API server with the same certificates and keys. Options select the
// shared store.
func (s *Server) StartReplica(options ...Option) *Server {
	s.t.Helper()
	return startServer(s.t, s.PKI, s.Admin, s.Signer, options)
}

// startServer starts an API server and waits until it is ready.
func startServer(t testing.TB, pki *PKI, admin, signer Pair, options []Option) *Server {
	t.Helper()
	port := FreePort(t)
	serving := pki.Serving(fmt.Sprintf("apiserver-%d", port))
	server := &Server{
		Process: NewProcess(t, string(APIServer), Binary(t, APIServer)),
		URL:     fmt.Sprintf("https://127.0.0.1:%d", port),
		PKI:     pki, Admin: admin, Signer: signer,
	}
	server.args = []string{
		"--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port),
		"--tls-cert-file=" + serving.CertFile, "--tls-private-key-file=" + serving.KeyFile,
		"--client-ca-file=" + pki.CA, "--cert-dir=" + pki.Dir,
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--allow-privileged=true",
		"--service-cluster-ip-range=" + ServiceRange,
		"--service-account-issuer=" + ServiceAccountIssuer,
		"--service-account-key-file=" + signer.CertFile, "--service-account-signing-key-file=" + signer.KeyFile,
		"--data-dir=" + filepath.Join(t.TempDir(), "etcd"),
	}
	if implementation := os.Getenv(HTTP2Env); implementation != "" {
		server.args = append(server.args, "--http2-implementation="+implementation)
	}
	for _, o := range options {
		o(server)
	}
	if !server.needsServiceAccounts {
		server.args = append(server.args, "--disable-admission-plugins=ServiceAccount")
	}
	server.Start()
	return server
}

// Start starts or restarts the server on the same port and data.
func (s *Server) Start() {
	s.t.Helper()
	s.Process.Start(s.args...)
	// An administrator is authorized even before RBAC objects can be read.
	admin, err := tls.X509KeyPair(s.Admin.Cert, s.Admin.Key)
	if err != nil {
		s.t.Fatal(err)
	}
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{admin}}, DisableKeepAlives: true,
	}}
	s.waitUntil("ready", func() error { return expectOK(client, s.URL+"/readyz") })
}

// Restart stops the server gracefully and starts it again.
func (s *Server) Restart() {
	s.t.Helper()
	if err := s.Stop(); err != nil {
		s.t.Fatalf("stop the API server: %v", err)
	}
	s.Start()
}

// Config returns the configuration of an administrator's client, which uses JSON and has no rate
// limit.
func (s *Server) Config() *rest.Config { return s.ConfigFor(s.Admin) }

// ConfigFor returns a client configuration with a client certificate and without a rate limit.
func (s *Server) ConfigFor(pair Pair) *rest.Config {
	return &rest.Config{
		Host: s.URL, QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{CAFile: s.PKI.CA, CertData: pair.Cert, KeyData: pair.Key},
	}
}

// Protobuf returns a copy of a configuration that uses protobuf.
func Protobuf(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.ContentType = protobufType
	config.AcceptContentTypes = protobufType + ",application/json"
	return config
}

// Client returns an administrator's client.
func (s *Server) Client() *kubernetes.Clientset {
	s.t.Helper()
	return ClientFor(s.t, s.Config())
}

// ClientFor returns a client for a configuration.
func ClientFor(t testing.TB, config *rest.Config) *kubernetes.Clientset {
	t.Helper()
	k, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// Kubeconfig writes a kubeconfig for a client certificate and returns its path.
func (s *Server) Kubeconfig(pair Pair) string {
	s.t.Helper()
	return s.KubeconfigAt(s.URL, pair)
}

// KubeconfigAt is Kubeconfig for another server with the same CA, or for a proxy of this one.
func (s *Server) KubeconfigAt(url string, pair Pair) string {
	s.t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["e2e"] = &clientcmdapi.Cluster{Server: url, CertificateAuthority: s.PKI.CA}
	config.AuthInfos["e2e"] = &clientcmdapi.AuthInfo{ClientCertificateData: pair.Cert, ClientKeyData: pair.Key}
	config.Contexts["e2e"] = &clientcmdapi.Context{Cluster: "e2e", AuthInfo: "e2e"}
	config.CurrentContext = "e2e"
	path := filepath.Join(s.t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		s.t.Fatal(err)
	}
	return path
}

// WithKubelets lets the server connect to kubelets that trust its CA.
func WithKubelets() Option {
	return func(s *Server) {
		client := s.PKI.Client("kubelet-client", SystemMasters)
		s.args = append(s.args,
			"--kubelet-certificate-authority="+s.PKI.CA,
			"--kubelet-client-certificate="+client.CertFile, "--kubelet-client-key="+client.KeyFile)
	}
}

// StartServerWith starts a server with the given PKI, administrator and flags. Pods need a service
// account.
func StartServerWith(t testing.TB, pki *PKI, admin Pair, flags ...string) *Server {
	t.Helper()
	return startServer(t, pki, admin, pki.Signer("tokens"), []Option{WithServiceAccounts(), WithFlags(flags...)})
}
