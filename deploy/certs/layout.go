package certs

import (
	"path/filepath"
	"slices"
)

// Services are the suite's services beside the API server.
func Services() []string {
	return []string{"authn-webhook", "authz-webhook", "tokencleaner", "bootstrapsigner", "console"}
}

// Names by which the API server is known: KubeletClientName to kubelets, which ask
// whether it may do what it wants, FrontProxyName to whoever believes a front proxy.
const (
	KubeletClientName = "kube-apiserver-kubelet-client"
	FrontProxyName    = "front-proxy-client"
)

// WebhookClientName is who the API server is to the services that it asks.
const WebhookClientName = "system:binnacle:apiserver"

// CA is one of the suite's certificate authorities. None believes what another
// has signed: what opens one door opens no other.
type CA string

// The authorities, by the names of their files.
const (
	// ClientCA signs who may ask the API server and the services beside it.
	ClientCA CA = "client-ca"
	// ServingCA signs what these show to their clients.
	ServingCA CA = "serving-ca"
	// EtcdCA signs etcd's members, and the API servers as their clients.
	EtcdCA CA = "etcd-ca"
	// NATSCA does so for NATS.
	NATSCA CA = "nats-ca"
	// FrontProxyCA signs proxies that say whom they speak for.
	FrontProxyCA CA = "front-proxy-ca"
	// KubeletCA signs what kubelets show, and the API servers as their clients.
	KubeletCA CA = "kubelet-ca"
)

// CAs are all authorities.
func CAs() []CA { return []CA{ClientCA, ServingCA, EtcdCA, NATSCA, FrontProxyCA, KubeletCA} }

// Layout names the files below a folder. Each program has a folder of its own,
// with only what it needs; the authorities and their keys are in the folder ca,
// which belongs to no program.
type Layout struct{ Dir string }

// Folders that belong to no service.
const (
	caFolder         = "ca"
	adminFolder      = "admin"
	frontProxyFolder = "front-proxy"
	monitoringFolder = "monitoring"
	balancerFolder   = "balancer"
	apiserverFolder  = "apiserver"
	etcdFolder       = "etcd"
	natsFolder       = "nats"
	tokenReviewer    = "authn-webhook" // needs to verify tokens
)

// CA is an authority. Its certificate file has all that are trusted in its name,
// the one that signs first.
func (l Layout) CA(a CA) Pair { return l.pair(caFolder, string(a)) }

// NextCA is an authority that is trusted already and does not sign yet; see
// Rotate.
func (l Layout) NextCA(a CA) Pair { return l.pair(caFolder, string(a)+"-next") }

// Trust is a program's copy of the certificates of an authority.
func (l Layout) Trust(program string, a CA) string {
	return filepath.Join(l.Folder(program), string(a)+".crt")
}

// Folder is that of a program.
func (l Layout) Folder(program string) string { return filepath.Join(l.Dir, program) }

// The pairs, by the folder of who shows them.
func (l Layout) APIServer() Pair     { return l.Serving(apiserverFolder) }
func (l Layout) WebhookClient() Pair { return l.pair(apiserverFolder, "apiserver-webhook-client") }
func (l Layout) EtcdClient() Pair    { return l.pair(apiserverFolder, "apiserver-etcd-client") }
func (l Layout) NATSClient() Pair    { return l.pair(apiserverFolder, "apiserver-nats-client") }

// ProxyClient is what the API server shows to extension servers, to which it is a
// front proxy; KubeletClient what it shows to kubelets.
func (l Layout) ProxyClient() Pair   { return l.pair(apiserverFolder, "apiserver-proxy-client") }
func (l Layout) KubeletClient() Pair { return l.pair(apiserverFolder, "apiserver-kubelet-client") }

// What belongs to no service of the suite.
func (l Layout) Admin() Pair      { return l.pair(adminFolder, "admin") }
func (l Layout) Monitoring() Pair { return l.pair(monitoringFolder, "monitoring") }
func (l Layout) FrontProxy() Pair { return l.pair(frontProxyFolder, "front-proxy-client") }

// Serving is what a service shows to its clients, Client what it shows to the API
// server.
func (l Layout) Serving(service string) Pair { return l.pair(service, service) }
func (l Layout) Client(service string) Pair  { return l.pair(service, service+"-client") }

// Etcd and NATS are what the members of these clusters show to clients and to
// each other.
func (l Layout) Etcd() Pair { return l.pair(etcdFolder, "etcd") }
func (l Layout) NATS() Pair { return l.pair(natsFolder, "nats") }

// AdminTrust is by what the admin knows the suite's services.
func (l Layout) AdminTrust() string { return l.Trust(adminFolder, ServingCA) }

// ServiceAccountKey and ServiceAccountPublicKey sign and verify tokens.
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

// Pair is the paths of a certificate and its key.
type Pair struct{ Cert, Key string }

// Programs are all that have a folder.
func Programs() []string {
	return slices.Concat([]string{apiserverFolder}, Services(), []string{etcdFolder, natsFolder, balancerFolder, adminFolder, monitoringFolder, frontProxyFolder})
}
