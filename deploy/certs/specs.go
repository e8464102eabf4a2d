package certs

import (
	"cmp"
	"crypto/x509"
	"net"
	"slices"
	"time"
)

// keyUsage is the extended key usage of a certificate.
type keyUsage int

const (
	usageServing keyUsage = iota
	usageClient
	usagePeer // server and client
)

func (u keyUsage) extKeyUsages() []x509.ExtKeyUsage {
	return [][]x509.ExtKeyUsage{
		usageServing: {x509.ExtKeyUsageServerAuth},
		usageClient:  {x509.ExtKeyUsageClientAuth},
		usagePeer:    {x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
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

// certSpec describes a certificate.
type certSpec struct {
	pair          Pair
	signer        CA
	commonName    string
	organizations []string
	use           keyUsage
	dns           []string
	ips           []net.IP
}

// programFolder describes the folder of a program: its certificates and the CAs that it
// trusts.
type programFolder struct {
	name   string
	certs  []certSpec
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

// suiteGroup is the group of the suite's own identities.
var suiteGroup = []string{"system:binnacle"}

// apiserverNames returns the names and addresses of the API server. They include those of the
// present certificate, so that a renewal without the options keeps them.
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
func (o Options) programs() []programFolder {
	l := Layout{o.Dir}
	local := []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	names, addresses := o.apiserverNames(local)
	out := []programFolder{{
		name: apiserverFolder, deployed: true, trusts: []CA{ClientCA, ServingCA, EtcdCA, NATSCA, FrontProxyCA, KubeletCA},
		certs: []certSpec{
			{
				pair: l.APIServer(), signer: ServingCA, commonName: "kube-apiserver", dns: names, ips: addresses,
			},
			{pair: l.WebhookClient(), signer: ClientCA, commonName: WebhookClientName, organizations: suiteGroup, use: usageClient},
			{pair: l.EtcdClient(), signer: EtcdCA, commonName: "apiserver", use: usageClient},
			{pair: l.NATSClient(), signer: NATSCA, commonName: "apiserver", use: usageClient},
			{pair: l.ProxyClient(), signer: FrontProxyCA, commonName: FrontProxyName, use: usageClient},
			{pair: l.KubeletClient(), signer: KubeletCA, commonName: KubeletClientName, use: usageClient},
		},
	}}
	for _, s := range Services() {
		out = append(out, programFolder{name: s, deployed: true, trusts: []CA{ClientCA, ServingCA}, certs: []certSpec{
			{pair: l.Serving(s), signer: ServingCA, commonName: s, dns: memberNames(s), ips: local},
			{pair: l.Client(s), signer: ClientCA, commonName: "system:binnacle:" + s, organizations: suiteGroup, use: usageClient},
		}})
	}
	return append(out,
		programFolder{name: etcdFolder, deployed: true, trusts: []CA{EtcdCA}, certs: []certSpec{{pair: l.Etcd(), signer: EtcdCA, commonName: "etcd", use: usagePeer, dns: memberNames("etcd"), ips: local}}},
		programFolder{name: natsFolder, deployed: true, trusts: []CA{NATSCA}, certs: []certSpec{{pair: l.NATS(), signer: NATSCA, commonName: "nats", use: usagePeer, dns: memberNames("nats"), ips: local}}},
		programFolder{name: balancerFolder, trusts: []CA{ServingCA}},
		programFolder{name: adminFolder, trusts: []CA{ServingCA}, certs: []certSpec{
			{pair: l.Admin(), signer: ClientCA, commonName: "binnacle-admin", organizations: []string{"system:masters"}, use: usageClient}}},
		programFolder{name: monitoringFolder, trusts: []CA{ServingCA}, certs: []certSpec{
			{pair: l.Monitoring(), signer: ClientCA, commonName: "binnacle-monitoring", organizations: []string{"system:monitoring"}, use: usageClient}}},
		programFolder{name: frontProxyFolder, trusts: []CA{ServingCA}, certs: []certSpec{
			{pair: l.FrontProxy(), signer: FrontProxyCA, commonName: FrontProxyName, use: usageClient}}},
		programFolder{name: managerFolder, trusts: []CA{ServingCA}, certs: []certSpec{
			{pair: l.ControllerManager(), signer: ClientCA, commonName: "system:" + managerFolder, use: usageClient}}},
		programFolder{name: schedulerFolder, trusts: []CA{ServingCA}, certs: []certSpec{
			{pair: l.Scheduler(), signer: ClientCA, commonName: "system:" + schedulerFolder, use: usageClient}}},
	)
}
