package suite

import (
	"fmt"
	"path/filepath"

	"binnacle/deploy/certs"
)

const (
	apiserver    = "apiserver"
	authnWebhook = "authn-webhook"
	authzWebhook = "authz-webhook"
	// tokenIssuer signs service account tokens, and is their audience.
	tokenIssuer = "https://kubernetes.default.svc"
)

// service is a process of the suite.
type service struct {
	name   string
	offset int // of its port from the API server's
	args   func(p paths, port int) []string
}

// isAuthority tells whether the API server asks a service, which then answers
// nobody else.
func isAuthority(name string) bool { return name == authnWebhook || name == authzWebhook }

// table lists the services in the order of their start.
func table() []service {
	services := []service{{name: apiserver, args: apiserverArgs}}
	for i, name := range certs.Services() {
		services = append(services, service{name: name, offset: i + 1, args: clientArgs(name)})
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
		"--enable-admission-plugins=NodeRestriction",
		"--authorization-mode=Webhook",
		"--authorization-webhook-config-file=" + p.webhookKubeconfig(authzWebhook),
		"--authorization-webhook-version=v1",
	}
}

// tokenArgs say which tokens are known.
func tokenArgs(l certs.Layout) []string {
	return []string{
		"--enable-bootstrap-token-auth",
		"--service-account-issuer=" + tokenIssuer,
		"--service-account-key-file=" + l.ServiceAccountPublicKey(),
		"--api-audiences=" + tokenIssuer,
	}
}

// clientArgs are the flags that every service beside the API server has.
func clientArgs(name string) func(paths, int) []string {
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
		if isAuthority(name) {
			args = append(args, "--require-client-certificate", "--allowed-client-names="+certs.WebhookClientName)
		}
		if name == authnWebhook {
			args = append(args, tokenArgs(l)...)
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

// webhookKubeconfig is how the API server reaches an authority.
func (p paths) webhookKubeconfig(service string) string {
	return filepath.Join(p.dir, "apiserver-"+service+".kubeconfig")
}
