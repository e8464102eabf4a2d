package certs

import (
	"cmp"
	"crypto/x509"
	"net"
	"slices"
	"time"
)

// use is the extended key usage of a certificate.
type use int

const (
	serving use = iota
	client
	peer // server and client
)

func (u use) extended() []x509.ExtKeyUsage {
	return [][]x509.ExtKeyUsage{
		serving: {x509.ExtKeyUsageServerAuth},
		client:  {x509.ExtKeyUsageClientAuth},
		peer:    {x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}[u]
}

// namespace is the namespace of deploy/manifests.
const namespace = "binnacle"

// memberNames returns the DNS names of a service with up to three members, as containers
// of one network and as pods behind a headless Service.
func memberNames(name string) []string {
	service := name + "." + namespace + ".svc"
	out := []string{"localhost", name, service, "*." + service, "*." + service + ".cluster.local"}
	for _, n := range []string{"-0", "-1", "-2"} {
		out = append(out, name+n)
	}
	return out
}

// spec describes a certificate.
type spec struct {
	pair          Pair
	by            CA
	cn            string
	organizations []string
	use           use
	dns           []string
	ips           []net.IP
}

// program describes the folder of a program: its certificates and the CAs that it
// trusts.
type program struct {
	name   string
	certs  []spec
	trusts []CA
	// deployed reports whether deploy/manifests runs the program, which needs a Secret.
	deployed bool
}

// Options describe the wanted certificates.
type Options struct {
	// Dir is the folder of the files. Ensure creates it if it is absent.
	Dir string
	// Names and Addresses are additional names of the API server's serving certificate.
	Names     []string
	Addresses []net.IP
	// Renew replaces all certificates except those of the CAs.
	Renew bool
	// NewCA replaces each CA that is missing, damaged or about to expire, and every
	// certificate that it signed.
	NewCA bool
	// ExternalCAs are CAs whose keys are kept elsewhere. Ensure needs only their
	// certificates and writes signing requests.
	ExternalCAs []CA
	// Lifetime and CALifetime are the lifetimes of new certificates. Zero means the
	// defaults. At least one hour.
	Lifetime, CALifetime time.Duration
}

func (o Options) lifetime() time.Duration   { return cmp.Or(o.Lifetime, DefaultLifetime) }
func (o Options) caLifetime() time.Duration { return cmp.Or(o.CALifetime, DefaultCALifetime) }

// suite is the group of the suite's own identities.
var suite = []string{"system:binnacle"}

// apiserverNames returns the names and addresses of the API server. They include those of the present
// certificate, so that a renewal without the options keeps them.
func (o Options) apiserverNames(local []net.IP) (dns []string, ips []net.IP) {
	dns = slices.Concat(memberNames("apiserver"), []string{"kubernetes", "kubernetes.default", "kubernetes.default.svc",
		"kubernetes.default.svc.cluster.local"}, o.Names)
	// 10.0.0.1 is the first address of the default service range.
	ips = slices.Concat(local, []net.IP{net.IPv4(10, 0, 0, 1)}, o.Addresses)
	present, err := readCertificate(Layout{o.Dir}.APIServer().Cert)
	if err != nil {
		return dns, ips
	}
	for _, name := range present.DNSNames {
		if !slices.Contains(dns, name) {
			dns = append(dns, name)
		}
	}
	for _, ip := range present.IPAddresses {
		if !slices.ContainsFunc(ips, ip.Equal) {
			ips = append(ips, ip)
		}
	}
	return dns, ips
}

// programs returns the content of each folder.
func (o Options) programs() []program {
	l := Layout{o.Dir}
	local := []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	names, addresses := o.apiserverNames(local)
	out := []program{{
		name: apiserverFolder, deployed: true, trusts: []CA{ClientCA, ServingCA, EtcdCA, NATSCA, FrontProxyCA, KubeletCA},
		certs: []spec{
			{
				pair: l.APIServer(), by: ServingCA, cn: "kube-apiserver", dns: names, ips: addresses,
			},
			{pair: l.WebhookClient(), by: ClientCA, cn: WebhookClientName, organizations: suite, use: client},
			{pair: l.EtcdClient(), by: EtcdCA, cn: "apiserver", use: client},
			{pair: l.NATSClient(), by: NATSCA, cn: "apiserver", use: client},
			{pair: l.ProxyClient(), by: FrontProxyCA, cn: FrontProxyName, use: client},
			{pair: l.KubeletClient(), by: KubeletCA, cn: KubeletClientName, use: client},
		},
	}}
	for _, s := range Services() {
		out = append(out, program{name: s, deployed: true, trusts: []CA{ClientCA, ServingCA}, certs: []spec{
			{pair: l.Serving(s), by: ServingCA, cn: s, dns: memberNames(s), ips: local},
			{pair: l.Client(s), by: ClientCA, cn: "system:binnacle:" + s, organizations: suite, use: client},
		}})
	}
	return append(out,
		program{name: etcdFolder, deployed: true, trusts: []CA{EtcdCA}, certs: []spec{{pair: l.Etcd(), by: EtcdCA, cn: "etcd", use: peer, dns: memberNames("etcd"), ips: local}}},
		program{name: natsFolder, deployed: true, trusts: []CA{NATSCA}, certs: []spec{{pair: l.NATS(), by: NATSCA, cn: "nats", use: peer, dns: memberNames("nats"), ips: local}}},
		program{name: balancerFolder, trusts: []CA{ServingCA}},
		program{name: adminFolder, trusts: []CA{ServingCA}, certs: []spec{
			{pair: l.Admin(), by: ClientCA, cn: "binnacle-admin", organizations: []string{"system:masters"}, use: client}}},
		program{name: monitoringFolder, trusts: []CA{ServingCA}, certs: []spec{
			{pair: l.Monitoring(), by: ClientCA, cn: "binnacle-monitoring", organizations: []string{"system:monitoring"}, use: client}}},
		program{name: frontProxyFolder, trusts: []CA{ServingCA}, certs: []spec{
			{pair: l.FrontProxy(), by: FrontProxyCA, cn: FrontProxyName, use: client}}},
		program{name: managerFolder, trusts: []CA{ServingCA}, certs: []spec{
			{pair: l.ControllerManager(), by: ClientCA, cn: "system:" + managerFolder, use: client}}},
		program{name: schedulerFolder, trusts: []CA{ServingCA}, certs: []spec{
			{pair: l.Scheduler(), by: ClientCA, cn: "system:" + schedulerFolder, use: client}}},
	)
}
