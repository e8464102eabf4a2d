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
	// consoleService shows the state of the other services.
	consoleService = "console"
	// tokenIssuer is the issuer and the audience of service account tokens.
	tokenIssuer = "https://kubernetes.default.svc"
)

// service is a service of the suite.
type service struct {
	name   string
	offset int // its port minus the port of the API server
	args   func(p paths, port int) []string
}

// instance is a process to run.
type instance struct {
	name     string // of this instance
	program  string // the command of the binary that runs it
	port     int
	health   string // URL that returns 200 when it is ready; host:port for NATS
	identity identity
	args     []string
}

// plan holds what a run starts.
type plan struct {
	services []service
	// groups are started in order, and stopped in reverse order. A group holds the instances of one
	// service.
	groups    [][]instance
	balancers []balancedService
}

// balancedService is a service whose connections are distributed over its instances.
type balancedService struct {
	name      string
	port      int
	instances []instance
}

// singlePlan returns a plan with one instance of each service, on consecutive ports.
func singlePlan(config Config) plan {
	out := plan{services: serviceTable(config)}
	for _, s := range out.services {
		port := config.Port + s.offset
		out.groups = append(out.groups, []instance{serviceInstance(s, s.name, config, port, out.consoleFlags(s)...)})
	}
	return out
}

// consolePort returns the port of the console.
func (p plan) consolePort(c Config) int {
	for _, s := range p.services {
		if s.name == consoleService {
			return c.Port + s.offset
		}
	}
	return 0
}

// consoleFlags returns the flags with which the console finds the other services of the plan.
func (p plan) consoleFlags(s service) (args []string) {
	if s.name != consoleService {
		return nil
	}
	for _, g := range p.groups {
		for _, i := range g {
			if i.identity == identityAdmin {
				args = append(args, "--target="+i.program+"="+localURL(i.port))
			}
		}
	}
	return args
}

func serviceInstance(svc service, name string, config Config, port int, extraArgs ...string) instance {
	return instance{
		name: name, program: svc.name, port: port, health: localURL(port) + "/readyz",
		args: append(svc.args(paths{dir: config.Dir}, port), extraArgs...),
	}
}

// isWebhook reports whether the API server calls a service, which then accepts no other callers.
func isWebhook(name string) bool { return name == authnWebhook || name == authzWebhook }

// serviceTable returns the services in the order of their start. The console is the last, because
// it needs to know the others.
func serviceTable(config Config) []service {
	services := []service{{name: apiserver, args: apiserverArgs(config)}}
	var last service
	for i, name := range certs.Services() {
		s := service{name: name, offset: i + 1, args: serviceArgs(name)}
		switch {
		case name == consoleService:
			last = s
		case name != certs.Controllers || !config.NoControllers:
			services = append(services, s)
		}
	}
	return append(services, last)
}

// apiserverArgs returns a function that returns the command line of an API server.
func apiserverArgs(config Config) func(paths, int) []string {
	return func(p paths, port int) []string {
		args := apiserverFlags(p, port)
		if config.NoControllers {
			// Nothing creates the service accounts that pods would need.
			args = append(args, "--disable-admission-plugins=ServiceAccount")
		}
		return args
	}
}

// apiserverFlags returns the flags that all API servers of a suite have.
func apiserverFlags(files paths, port int) []string {
	layout := files.certs()
	return []string{
		"--data-dir=" + filepath.Join(files.dir, "data"),
		"--bind-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", port),
		"--tls-cert-file=" + layout.APIServer().Cert,
		"--tls-private-key-file=" + layout.APIServer().Key,
		"--client-ca-file=" + layout.TrustBundle(apiserver, certs.ClientCA),
		"--service-account-issuer=" + tokenIssuer,
		"--service-account-signing-key-file=" + layout.ServiceAccountKey(),
		"--api-audiences=" + tokenIssuer,
		"--authentication-token-webhook-config-file=" + files.webhookKubeconfig(authnWebhook),
		"--authentication-token-webhook-version=v1",
		"--service-cluster-ip-range=10.0.0.0/24",
		"--authorization-mode=Webhook",
		"--authorization-webhook-config-file=" + files.webhookKubeconfig(authzWebhook),
		"--authorization-webhook-version=v1",
		"--requestheader-client-ca-file=" + layout.TrustBundle(apiserver, certs.FrontProxyCA),
		"--requestheader-allowed-names=" + certs.FrontProxyName,
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + layout.ProxyClient().Cert,
		"--proxy-client-key-file=" + layout.ProxyClient().Key,
		"--kubelet-certificate-authority=" + layout.TrustBundle(apiserver, certs.KubeletCA),
		"--kubelet-client-certificate=" + layout.KubeletClient().Cert,
		"--kubelet-client-key=" + layout.KubeletClient().Key,
	}
}

// tokenArgs returns the flags for the accepted tokens.
func tokenArgs(layout certs.Layout) []string {
	return []string{
		"--enable-bootstrap-token-auth",
		"--service-account-issuer=" + tokenIssuer,
		"--service-account-key-file=" + layout.ServiceAccountPublicKey(),
		"--api-audiences=" + tokenIssuer,
	}
}

// serviceArgs returns the flags of every service other than the API server.
func serviceArgs(name string) func(paths, int) []string {
	return func(files paths, port int) []string {
		layout := files.certs()
		args := []string{
			"--bind-address=127.0.0.1",
			fmt.Sprintf("--secure-port=%d", port),
			"--tls-cert-file=" + layout.Serving(name).Cert,
			"--tls-private-key-file=" + layout.Serving(name).Key,
			"--client-ca-file=" + layout.TrustBundle(name, certs.ClientCA),
			"--kubeconfig=" + files.kubeconfig(name),
		}
		if isWebhook(name) {
			args = append(args, "--allowed-client-names="+certs.WebhookClientName)
		}
		if name == authnWebhook {
			args = append(append(args, tokenArgs(layout)...), "--token-auth-file="+files.tokenFile())
		}
		return args
	}
}

// managerKubeconfig and schedulerKubeconfig return the kubeconfigs of Kubernetes' own controllers,
// which can run together with the suite.
func (p paths) managerKubeconfig() string   { return p.kubeconfig("kube-controller-manager") }
func (p paths) schedulerKubeconfig() string { return p.kubeconfig("kube-scheduler") }

// paths returns the names of files below the suite's folder.
type paths struct{ dir string }

func (p paths) certs() certs.Layout     { return certs.Layout{Dir: filepath.Join(p.dir, "certs")} }
func (p paths) adminKubeconfig() string { return filepath.Join(p.dir, "kubeconfig") }

// tokenFile returns the file with the token of the console's link.
func (p paths) tokenFile() string   { return filepath.Join(p.dir, "tokens.csv") }
func (p paths) consoleLink() string { return filepath.Join(p.dir, "console.url") }

func (p paths) kubeconfig(service string) string {
	return filepath.Join(p.dir, service+".kubeconfig")
}

// webhookKubeconfig returns the kubeconfig with which the API server calls an authority.
func (p paths) webhookKubeconfig(service string) string {
	return filepath.Join(p.dir, "apiserver-"+service+".kubeconfig")
}
