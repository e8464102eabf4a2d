package certs

import (
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
func (l Layout) Client(s string) Pair { return l.pair(s + "-client") }

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

// spec is a certificate that is wanted.
type spec struct {
	pair          Pair
	cn            string
	organizations []string
	client        bool // else for serving
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
}

func (o Options) specs() []spec {
	l := Layout{o.Dir}
	localNames := []string{"localhost"}
	localAddresses := []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	out := []spec{
		{
			pair: l.APIServer(), cn: "kube-apiserver",
			dns: slices.Concat(localNames, []string{"kubernetes", "kubernetes.default", "kubernetes.default.svc",
				"kubernetes.default.svc.cluster.local"}, o.Names),
			// 10.0.0.1 is the first address of the default service range.
			ips: slices.Concat(localAddresses, []net.IP{net.IPv4(10, 0, 0, 1)}, o.Addresses),
		},
		{pair: l.Admin(), cn: "binnacle-admin", organizations: []string{"system:masters"}, client: true},
		{pair: l.FrontProxy(), cn: "front-proxy-client", client: true, frontProxy: true},
		{pair: l.WebhookClient(), cn: WebhookClientName, organizations: []string{"system:binnacle"}, client: true},
	}
	for _, s := range Services() {
		out = append(out,
			spec{pair: l.Serving(s), cn: s, dns: slices.Concat(localNames, []string{s}), ips: localAddresses},
			spec{pair: l.Client(s), cn: "system:binnacle:" + s, organizations: []string{"system:binnacle"}, client: true},
		)
	}
	return out
}
