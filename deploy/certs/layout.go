package certs

import (
	"crypto/x509"
	"net"
	"path/filepath"
	"slices"
)

// Services are the suite's services beside the API server.
func Services() []string {
	return []string{"authn-webhook", "authz-webhook", "tokencleaner", "bootstrapsigner"}
}

// WebhookClientName is who the API server is to the services that it asks.
const WebhookClientName = "system:binnacle:apiserver"

// Layout names the files below a folder.
type Layout struct{ Dir string }

// The files. A pair is named without the suffixes .crt and .key.
func (l Layout) CA() Pair             { return l.pair("ca") }
func (l Layout) FrontProxyCA() Pair   { return l.pair("front-proxy-ca") }
func (l Layout) APIServer() Pair      { return l.pair("apiserver") }
func (l Layout) Admin() Pair          { return l.pair("admin") }
func (l Layout) FrontProxy() Pair     { return l.pair("front-proxy-client") }
func (l Layout) WebhookClient() Pair  { return l.pair("apiserver-webhook-client") }
func (l Layout) EtcdClient() Pair     { return l.pair("apiserver-etcd-client") }
func (l Layout) NATSClient() Pair     { return l.pair("apiserver-nats-client") }
func (l Layout) Client(s string) Pair { return l.pair(s + "-client") }

// Etcd and NATS are what the members of these clusters show to clients and to
// each other.
func (l Layout) Etcd() Pair { return l.pair("etcd") }
func (l Layout) NATS() Pair { return l.pair("nats") }

// NextCA is a CA that is trusted already and does not sign yet; see Rotate.
func (l Layout) NextCA() Pair { return l.pair("ca-next") }

// Serving is a service's own serving pair.
func (l Layout) Serving(service string) Pair { return l.pair(service) }

// ServiceAccountKey and ServiceAccountPublicKey sign and verify tokens.
func (l Layout) ServiceAccountKey() string       { return filepath.Join(l.Dir, "sa.key") }
func (l Layout) ServiceAccountPublicKey() string { return filepath.Join(l.Dir, "sa.pub") }

func (l Layout) pair(name string) Pair {
	base := filepath.Join(l.Dir, name)
	return Pair{Cert: base + ".crt", Key: base + ".key"}
}

// Pair is the paths of a certificate and its key.
type Pair struct{ Cert, Key string }

// use is what a certificate is good for.
type use int

const (
	serving use = iota
	client
	peer // both
)

func (u use) extended() []x509.ExtKeyUsage {
	return [][]x509.ExtKeyUsage{
		serving: {x509.ExtKeyUsageServerAuth},
		client:  {x509.ExtKeyUsageClientAuth},
		peer:    {x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}[u]
}

// namespace is where deploy/manifests runs the suite.
const namespace = "binnacle"

// members are the names of a cluster's three members, on a network of
// containers and as pods behind a headless service.
func members(name string) []string {
	out := []string{"localhost", name, name + "." + namespace + ".svc", "*." + name + "." + namespace + ".svc", "*." + name + "." + namespace + ".svc.cluster.local"}
	for _, n := range []string{"-0", "-1", "-2"} {
		out = append(out, name+n)
	}
	return out
}

// spec is a certificate that is wanted.
type spec struct {
	pair          Pair
	cn            string
	organizations []string
	use           use
	frontProxy    bool // signed by the front-proxy CA
	dns           []string
	ips           []net.IP
}

// Options say what the certificates are for.
type Options struct {
	// Dir is where the files are; it is made when absent.
	Dir string
	// Names and Addresses are further ones of the API server.
	Names     []string
	Addresses []net.IP
	// Renew makes all certificates but those of the CAs anew, fit or not.
	Renew bool
}

func (o Options) specs() []spec {
	l := Layout{o.Dir}
	localAddresses := []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	out := []spec{
		{
			pair: l.APIServer(), cn: "kube-apiserver",
			dns: slices.Concat(members("apiserver"), []string{"kubernetes", "kubernetes.default", "kubernetes.default.svc",
				"kubernetes.default.svc.cluster.local"}, o.Names),
			// 10.0.0.1 is the first address of the default service range.
			ips: slices.Concat(localAddresses, []net.IP{net.IPv4(10, 0, 0, 1)}, o.Addresses),
		},
		{pair: l.Admin(), cn: "binnacle-admin", organizations: []string{"system:masters"}, use: client},
		{pair: l.FrontProxy(), cn: "front-proxy-client", use: client, frontProxy: true},
		{pair: l.WebhookClient(), cn: WebhookClientName, organizations: []string{"system:binnacle"}, use: client},
	}
	out = append(out,
		spec{pair: l.Etcd(), cn: "etcd", use: peer, dns: members("etcd"), ips: localAddresses},
		spec{pair: l.EtcdClient(), cn: "apiserver", use: client},
		spec{pair: l.NATS(), cn: "nats", use: peer, dns: members("nats"), ips: localAddresses},
		spec{pair: l.NATSClient(), cn: "apiserver", use: client},
	)
	for _, s := range Services() {
		out = append(out,
			spec{pair: l.Serving(s), cn: s, dns: members(s), ips: localAddresses},
			spec{pair: l.Client(s), cn: "system:binnacle:" + s, organizations: []string{"system:binnacle"}, use: client},
		)
	}
	return out
}
