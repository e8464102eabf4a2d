package certs

import (
	"crypto/x509"
	"net"
	"slices"
)

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
	by            CA
	cn            string
	organizations []string
	use           use
	dns           []string
	ips           []net.IP
}

// program is what has a folder: what it shows, and by what it knows others.
type program struct {
	name   string
	shows  []spec
	trusts []CA
	// deployed: it runs as pods, so it has a Secret.
	deployed bool
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

// suite is the group of the suite's own identities, whose permissions are fixed.
var suite = []string{"system:binnacle"}

// programs say what each folder holds.
func (o Options) programs() []program {
	l := Layout{o.Dir}
	local := []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	out := []program{{
		name: apiserverFolder, deployed: true, trusts: []CA{ClientCA, ServingCA, EtcdCA, NATSCA, FrontProxyCA, KubeletCA},
		shows: []spec{
			{
				pair: l.APIServer(), by: ServingCA, cn: "kube-apiserver",
				dns: slices.Concat(members("apiserver"), []string{"kubernetes", "kubernetes.default", "kubernetes.default.svc",
					"kubernetes.default.svc.cluster.local"}, o.Names),
				// 10.0.0.1 is the first address of the default service range.
				ips: slices.Concat(local, []net.IP{net.IPv4(10, 0, 0, 1)}, o.Addresses),
			},
			{pair: l.WebhookClient(), by: ClientCA, cn: WebhookClientName, organizations: suite, use: client},
			{pair: l.EtcdClient(), by: EtcdCA, cn: "apiserver", use: client},
			{pair: l.NATSClient(), by: NATSCA, cn: "apiserver", use: client},
			{pair: l.ProxyClient(), by: FrontProxyCA, cn: FrontProxyName, use: client},
			{pair: l.KubeletClient(), by: KubeletCA, cn: KubeletClientName, use: client},
		},
	}}
	for _, s := range Services() {
		out = append(out, program{name: s, deployed: true, trusts: []CA{ClientCA, ServingCA}, shows: []spec{
			{pair: l.Serving(s), by: ServingCA, cn: s, dns: members(s), ips: local},
			{pair: l.Client(s), by: ClientCA, cn: "system:binnacle:" + s, organizations: suite, use: client},
		}})
	}
	return append(out,
		program{name: etcdFolder, deployed: true, trusts: []CA{EtcdCA}, shows: []spec{{pair: l.Etcd(), by: EtcdCA, cn: "etcd", use: peer, dns: members("etcd"), ips: local}}},
		program{name: natsFolder, deployed: true, trusts: []CA{NATSCA}, shows: []spec{{pair: l.NATS(), by: NATSCA, cn: "nats", use: peer, dns: members("nats"), ips: local}}},
		program{name: balancerFolder, trusts: []CA{ServingCA}},
		program{name: adminFolder, trusts: []CA{ServingCA}, shows: []spec{
			{pair: l.Admin(), by: ClientCA, cn: "binnacle-admin", organizations: []string{"system:masters"}, use: client}}},
		program{name: monitoringFolder, trusts: []CA{ServingCA}, shows: []spec{
			{pair: l.Monitoring(), by: ClientCA, cn: "binnacle-monitoring", organizations: []string{"system:monitoring"}, use: client}}},
		program{name: frontProxyFolder, trusts: []CA{ServingCA}, shows: []spec{
			{pair: l.FrontProxy(), by: FrontProxyCA, cn: FrontProxyName, use: client}}},
	)
}
