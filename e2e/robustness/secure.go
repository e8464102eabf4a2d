package robustness

import (
	"time"

	"binnacle/e2e/harness"
)

// shortCertificateLifetime is the remaining lifetime of a certificate that expires while it is in
// use.
const shortCertificateLifetime = 1500 * time.Millisecond

// certificates holds the certificates of a cluster.
type certificates struct {
	pki         *harness.PKI
	etcdServing harness.Pair // etcd's serving certificate
}

// clientPairs are a replica's client certificates for etcd and NATS.
type clientPairs struct{ etcd, nats harness.Pair }

// startServersWithTLS starts etcd and NATS with mutual TLS.
func (c *Cluster) startServersWithTLS() {
	c.t.Helper()
	c.certificates = &certificates{pki: harness.NewPKI(c.t)}
	etcd, serving := harness.StartSecureEtcd(c.t, c.certificates.pki)
	c.etcd = []*member{{etcd, &harness.Disk{}}}
	c.certificates.etcdServing = serving
	pair := c.certificates.pki.Serving("nats")
	c.nats = harness.StartNATS(c.t, c.topology.nats, "--tlsverify", "--tlscert="+pair.CertFile,
		"--tlskey="+pair.KeyFile, "--tlscacert="+c.certificates.pki.CA)
}

// withCertificates gives a replica its own client certificates.
func (c *Cluster) withCertificates(r *replica) harness.Option {
	pki, name := c.certificates.pki, string(rune('a'+len(c.replicas)))
	r.clientPairs = clientPairs{etcd: pki.Client("etcd-" + name), nats: pki.Client("nats-" + name)}
	return harness.WithFlags(
		"--etcd-cafile="+pki.CA, "--etcd-certfile="+r.clientPairs.etcd.CertFile, "--etcd-keyfile="+r.clientPairs.etcd.KeyFile,
		"--nats-ca-file="+pki.CA, "--nats-cert-file="+r.clientPairs.nats.CertFile, "--nats-key-file="+r.clientPairs.nats.KeyFile,
	)
}

// certificateFaults are certificates that expire while in use and are then renewed.
func certificateFaults() []fault {
	return []fault{
		{"the publisher's certificate for etcd expires", atPublisher(expireEtcdClientCertificate), untilTakeover},
		{"a replica's certificate for etcd expires", atOtherReplica(expireEtcdClientCertificate), brief},
		{"the publisher's certificate for NATS expires", atPublisher(expireNATSClientCertificate), untilGapDetected},
		{"a replica's certificate for NATS expires", atOtherReplica(expireNATSClientCertificate), untilGapDetected},
		{"etcd's certificate expires", expireEtcdServingCertificate, brief},
	}
}

// expireCertificate lets a certificate expire while links use it. It then resets the links, because
// only new connections check the certificate.
func (c *Cluster) expireCertificate(pair harness.Pair, links ...*harness.Proxy) (renew func()) {
	c.t.Helper()
	reset := func() {
		for _, l := range links {
			l.Reset()
		}
	}
	end := time.Now().Add(shortCertificateLifetime)
	c.certificates.pki.Reissue(pair, end)
	reset()
	over := time.NewTimer(time.Until(end))
	defer over.Stop()
	<-over.C
	reset()
	return func() { c.certificates.pki.Reissue(pair, time.Now().Add(time.Hour)) }
}

// expireEtcdClientCertificate lets a replica's certificate for etcd expire.
func expireEtcdClientCertificate(cluster *Cluster, target *replica) func() {
	return cluster.expireCertificate(target.clientPairs.etcd, target.toEtcd...)
}

// expireNATSClientCertificate lets a replica's certificate for NATS expire.
func expireNATSClientCertificate(cluster *Cluster, target *replica) func() {
	return cluster.expireCertificate(target.clientPairs.nats, target.toNATS...)
}

// expireEtcdServingCertificate lets the certificate of etcd expire.
func expireEtcdServingCertificate(cluster *Cluster) func() {
	var links []*harness.Proxy
	for _, r := range cluster.replicas {
		links = append(links, r.toEtcd...)
	}
	return cluster.expireCertificate(cluster.certificates.etcdServing, links...)
}
