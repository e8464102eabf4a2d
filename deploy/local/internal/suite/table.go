package suite

import (
	"fmt"
	"path/filepath"

	"binnacle/deploy/certs"
)

const (
	apiserver    = "apiserver"
	authnWebhook = "authn-webhook"
	// tokenIssuer signs service account tokens, and is their audience.
	tokenIssuer = "https://kubernetes.default.svc"
)

// service is a process of the suite.
type service struct {
	name   string
	offset int // of its port from the API server's
	args   func(p paths, port int) []string
}

// table lists the services in the order of their start.
func table() []service {
	own := map[string]func(paths) []string{authnWebhook: authnArgs}
	services := []service{{name: apiserver, args: apiserverArgs}}
	for i, name := range certs.Services() {
		services = append(services, service{name: name, offset: i + 1, args: clientArgs(name, own[name])})
	}
	return services
}

func apiserverArgs(p paths, port int) []string {
	l := p.certs()
	return []string{
		"--data-dir=" + filepath.Join(p.dir, "data"),
		"--bind-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", port),
		"--tls-cert-file=" + l.APIServer().Cert,
		"--tls-private-key-file=" + l.APIServer().Key,
		"--client-ca-file=" + l.CA().Cert,
		"--service-account-issuer=" + tokenIssuer,
		"--service-account-signing-key-file=" + l.ServiceAccountKey(),
		"--api-audiences=" + tokenIssuer,
		"--authentication-token-webhook-config-file=" + p.webhookKubeconfig(authnWebhook),
		"--authentication-token-webhook-version=v1",
		"--service-cluster-ip-range=10.0.0.0/24",
		"--authorization-mode=Node,RBAC",
	}
}

// authnArgs are the flags of the service that reviews the API server's tokens.
func authnArgs(p paths) []string {
	return []string{
		"--require-client-certificate",
		"--allowed-client-names=system:binnacle:apiserver",
		"--enable-bootstrap-token-auth",
		"--service-account-issuer=" + tokenIssuer,
		"--service-account-key-file=" + p.certs().ServiceAccountPublicKey(),
		"--api-audiences=" + tokenIssuer,
	}
}

// clientArgs are the flags that every service beside the API server has, and
// those of its own.
func clientArgs(name string, own func(paths) []string) func(paths, int) []string {
	return func(p paths, port int) []string {
		l := p.certs()
		args := []string{
			"--bind-address=127.0.0.1",
			fmt.Sprintf("--secure-port=%d", port),
			"--tls-cert-file=" + l.Serving(name).Cert,
			"--tls-private-key-file=" + l.Serving(name).Key,
			"--client-ca-file=" + l.CA().Cert,
			"--kubeconfig=" + p.kubeconfig(name),
		}
		if own != nil {
			args = append(args, own(p)...)
		}
		return args
	}
}

// paths names the files below the suite's folder.
type paths struct{ dir string }

func (p paths) certs() certs.Layout     { return certs.Layout{Dir: filepath.Join(p.dir, "certs")} }
func (p paths) adminKubeconfig() string { return filepath.Join(p.dir, "kubeconfig") }

func (p paths) kubeconfig(service string) string {
	return filepath.Join(p.dir, service+".kubeconfig")
}

// webhookKubeconfig is with what the API server asks a service.
func (p paths) webhookKubeconfig(service string) string {
	return filepath.Join(p.dir, "apiserver-to-"+service+".kubeconfig")
}
