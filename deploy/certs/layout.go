package certs

import (
	"path/filepath"
	"slices"
)

// Controllers is the service that takes the place of kube-controller-manager.
const Controllers = "controllers"

// Services returns the services of the suite other than the API server.
func Services() []string {
	return []string{"authn-webhook", "authz-webhook", "tokencleaner", "bootstrapsigner", "console", Controllers}
}

// Common names of the API server's client certificates: KubeletClientName for kubelets,
// which authorize it, and FrontProxyName for extension servers that trust it as a front
// proxy.
const (
	KubeletClientName = "kube-apiserver-kubelet-client"
	FrontProxyName    = "front-proxy-client"
)

// WebhookClientName is the user name of the API server at the webhook services.
const WebhookClientName = "system:binnacle:apiserver"

// CA is one of the suite's certificate authorities. Each has one purpose, so that a
// certificate for one purpose is worthless for the others.
type CA string

// The CAs. The value is the base name of the files.
const (
	// ClientCA signs clients of the API server and of the services.
	ClientCA CA = "client-ca"
	// ServingCA signs the serving certificates of the API server and the services.
	ServingCA CA = "serving-ca"
	// EtcdCA signs the members of etcd and their clients.
	EtcdCA CA = "etcd-ca"
	// NATSCA signs the members of NATS and their clients.
	NATSCA CA = "nats-ca"
	// FrontProxyCA signs front proxies, which assert the identity of their clients.
	FrontProxyCA CA = "front-proxy-ca"
	// KubeletCA signs the serving certificates of kubelets, and the API server as their
	// client.
	KubeletCA CA = "kubelet-ca"
)

// CAs returns all CAs.
func CAs() []CA { return []CA{ClientCA, ServingCA, EtcdCA, NATSCA, FrontProxyCA, KubeletCA} }

// Layout names the files below a folder. Each program has a folder of its own. The CAs
// and their keys are in the folder ca, which belongs to no program.
type Layout struct{ Dir string }

// Folders that belong to no service.
const (
	caFolder         = "ca"
	adminFolder      = "admin"
	frontProxyFolder = "front-proxy"
	monitoringFolder = "monitoring"
	balancerFolder   = "balancer"
	managerFolder    = "kube-controller-manager"
	schedulerFolder  = "kube-scheduler"
	apiserverFolder  = "apiserver"
	etcdFolder       = "etcd"
	natsFolder       = "nats"
	tokenReviewer    = "authn-webhook" // verifies service account tokens
)

// CA returns the files of a CA. The certificate file holds all trusted certificates of
// the CA; the first one signs.
func (l Layout) CA(a CA) Pair { return l.pair(caFolder, string(a)) }

// NextCA returns the files of a CA that is trusted and does not sign yet. See Rotate.
func (l Layout) NextCA(a CA) Pair { return l.pair(caFolder, string(a)+"-next") }

// TrustBundle returns the path of a program's copy of the certificates of a CA.
func (l Layout) TrustBundle(program string, a CA) string {
	return filepath.Join(l.Folder(program), string(a)+".crt")
}

// Folder returns the folder of a program.
func (l Layout) Folder(program string) string { return filepath.Join(l.Dir, program) }

// Certificates of the API server.
func (l Layout) APIServer() Pair     { return l.Serving(apiserverFolder) }
func (l Layout) WebhookClient() Pair { return l.pair(apiserverFolder, "apiserver-webhook-client") }
func (l Layout) EtcdClient() Pair    { return l.pair(apiserverFolder, "apiserver-etcd-client") }
func (l Layout) NATSClient() Pair    { return l.pair(apiserverFolder, "apiserver-nats-client") }

// ProxyClient and KubeletClient return the API server's client certificates for
// extension servers and for kubelets.
func (l Layout) ProxyClient() Pair   { return l.pair(apiserverFolder, "apiserver-proxy-client") }
func (l Layout) KubeletClient() Pair { return l.pair(apiserverFolder, "apiserver-kubelet-client") }

// Certificates of clients outside the suite.
func (l Layout) Admin() Pair      { return l.pair(adminFolder, "admin") }
func (l Layout) Monitoring() Pair { return l.pair(monitoringFolder, "monitoring") }
func (l Layout) FrontProxy() Pair { return l.pair(frontProxyFolder, "front-proxy-client") }

// ControllerManager and Scheduler return the client certificates of Kubernetes' own controllers,
// which can run together with the suite.
func (l Layout) ControllerManager() Pair { return l.pair(managerFolder, managerFolder) }
func (l Layout) Scheduler() Pair         { return l.pair(schedulerFolder, schedulerFolder) }

// Serving and Client return the serving certificate of a service, and its client
// certificate for the API server.
func (l Layout) Serving(service string) Pair { return l.pair(service, service) }
func (l Layout) Client(service string) Pair  { return l.pair(service, service+"-client") }

// Etcd and NATS return the certificates of the members of these clusters.
func (l Layout) Etcd() Pair { return l.pair(etcdFolder, "etcd") }
func (l Layout) NATS() Pair { return l.pair(natsFolder, "nats") }

// AdminTrust returns the path of the CA certificates that the admin trusts.
func (l Layout) AdminTrust() string { return l.TrustBundle(adminFolder, ServingCA) }

// ServiceAccountKey and ServiceAccountPublicKey return the paths of the keys that sign
// and verify service account tokens.
func (l Layout) ServiceAccountKey() string {
	return filepath.Join(l.Folder(apiserverFolder), "sa.key")
}
func (l Layout) ServiceAccountPublicKey() string {
	return filepath.Join(l.Folder(tokenReviewer), "sa.pub")
}

func (l Layout) pair(folder, name string) Pair {
	base := filepath.Join(l.Dir, folder, name)
	return Pair{Cert: base + ".crt", Key: base + ".key"}
}

// Pair holds the paths of a certificate and its key.
type Pair struct{ Cert, Key string }

// Programs returns all programs that have a folder.
func Programs() []string {
	return slices.Concat([]string{apiserverFolder}, Services(),
		[]string{etcdFolder, natsFolder, balancerFolder, adminFolder, monitoringFolder, frontProxyFolder,
			managerFolder, schedulerFolder})
}
