package certs

import (
	"cmp"
	"crypto/x509"
	"net"
	"slices"
	"time"
)

// keyUsage is the purpose of a certificate.
type keyUsage int

const (
	usageServing keyUsage = iota
	usageClient
	usagePeer // server and client
)

// extKeyUsages returns the extended key usages of a certificate in X.509.
func (u keyUsage) extKeyUsages() []x509.ExtKeyUsage {
	return [][]x509.ExtKeyUsage{
		usageServing: {x509.ExtKeyUsageServerAuth},
		usageClient:  {x509.ExtKeyUsageClientAuth},
		usagePeer:    {x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}[u]
}

// namespace is the namespace of deploy/manifests.
const namespace = "binnacle"

// memberNames returns the DNS names of a service with up to three members. Members may be
// containers in one network, or pods behind a headless Service.
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

// programFolder describes the folder of a program.
type programFolder struct {
	name string
	// certs holds the certificates that the program presents, and trusts the CAs that it trusts.
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

// apiserverNames returns the names and addresses for the API server's serving certificate. They
// include the names and addresses in the present certificate, so that a renewal keeps them even
// if the options no longer contain them.
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

// programs returns the folders of all programs.
func (o Options) programs() []programFolder {
	local := []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	return slices.Concat(
		[]programFolder{o.apiserverProgram(local)},
		o.servicePrograms(local),
		o.storagePrograms(local),
		o.clientPrograms(),
	)
}

// apiserverProgram returns the folder of the API server. local holds the loopback addresses.
func (o Options) apiserverProgram(local []net.IP) programFolder {
	layout := Layout{o.Dir}
	names, addresses := o.apiserverNames(local)
	return programFolder{
		name:     apiserverFolder,
		deployed: true,
		trusts:   []CA{ClientCA, ServingCA, EtcdCA, NATSCA, FrontProxyCA, KubeletCA},
		certs: []certSpec{
			{pair: layout.APIServer(), signer: ServingCA, commonName: "kube-apiserver", dns: names, ips: addresses},
			clientCert(layout.WebhookClient(), ClientCA, WebhookClientName, suiteGroup...),
			clientCert(layout.EtcdClient(), EtcdCA, "apiserver"),
			clientCert(layout.NATSClient(), NATSCA, "apiserver"),
			clientCert(layout.ProxyClient(), FrontProxyCA, FrontProxyName),
			clientCert(layout.KubeletClient(), KubeletCA, KubeletClientName),
		},
	}
}

// servicePrograms returns the folders of the other services of the suite, each with a serving and a
// client certificate. local holds the loopback addresses.
func (o Options) servicePrograms(local []net.IP) (out []programFolder) {
	layout := Layout{o.Dir}
	for _, s := range Services() {
		out = append(out, programFolder{
			name:     s,
			deployed: true,
			trusts:   []CA{ClientCA, ServingCA},
			certs: []certSpec{
				{pair: layout.Serving(s), signer: ServingCA, commonName: s, dns: memberNames(s), ips: local},
				clientCert(layout.Client(s), ClientCA, "system:binnacle:"+s, suiteGroup...),
			},
		})
	}
	return out
}

// storagePrograms returns the folders of etcd and NATS. Their members use one certificate as server
// and as client. local holds the loopback addresses.
func (o Options) storagePrograms(local []net.IP) []programFolder {
	layout := Layout{o.Dir}
	folder := func(name string, ca CA, pair Pair, commonName string) programFolder {
		return programFolder{
			name:     name,
			deployed: true,
			trusts:   []CA{ca},
			certs: []certSpec{{
				pair:       pair,
				signer:     ca,
				commonName: commonName,
				use:        usagePeer,
				dns:        memberNames(commonName),
				ips:        local,
			}},
		}
	}
	return []programFolder{
		folder(etcdFolder, EtcdCA, layout.Etcd(), "etcd"),
		folder(natsFolder, NATSCA, layout.NATS(), "nats"),
	}
}

// clientPrograms returns the folders of programs that are only clients of the API server.
func (o Options) clientPrograms() []programFolder {
	layout := Layout{o.Dir}
	folder := func(name string, certs ...certSpec) programFolder {
		return programFolder{name: name, trusts: []CA{ServingCA}, certs: certs}
	}
	return []programFolder{
		folder(balancerFolder),
		folder(adminFolder, clientCert(layout.Admin(), ClientCA, "binnacle-admin", "system:masters")),
		folder(monitoringFolder, clientCert(layout.Monitoring(), ClientCA, "binnacle-monitoring", "system:monitoring")),
		folder(frontProxyFolder, clientCert(layout.FrontProxy(), FrontProxyCA, FrontProxyName)),
		folder(managerFolder, clientCert(layout.ControllerManager(), ClientCA, "system:"+managerFolder)),
		folder(schedulerFolder, clientCert(layout.Scheduler(), ClientCA, "system:"+schedulerFolder)),
	}
}

// clientCert describes a client certificate. Its common name is the name of a user, and its
// organizations are the user's groups.
func clientCert(pair Pair, signer CA, commonName string, organizations ...string) certSpec {
	return certSpec{
		pair:          pair,
		signer:        signer,
		commonName:    commonName,
		organizations: organizations,
		use:           usageClient,
	}
}
