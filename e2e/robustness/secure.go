package robustness

import (
	"time"

	"binnacle/e2e/harness"
)

// shortLifetime is the remaining lifetime of a certificate that expires while it is in use.
const shortLifetime = 1500 * time.Millisecond

// security holds the certificates of a cluster.
type security struct {
	pki  *harness.PKI
	etcd harness.Pair // etcd's serving certificate
}

// pairs are a replica's client certificates for etcd and NATS.
type pairs struct{ etcd, nats harness.Pair }

// startSecurely starts etcd and NATS with mutual TLS.
func (c *Cluster) startSecurely() {
	c.t.Helper()
	c.security = &security{pki: harness.NewPKI(c.t)}
	etcd, serving := harness.StartSecureEtcd(c.t, c.security.pki)
	c.etcd = []*member{{etcd, &harness.Disk{}}}
	c.security.etcd = serving
	pair := c.security.pki.Serving("nats")
	c.nats = harness.StartNATS(c.t, c.topology.nats, "--tlsverify", "--tlscert="+pair.CertFile, "--tlskey="+pair.KeyFile, "--tlscacert="+c.security.pki.CA)
}

// withCertificates gives a replica its own client certificates.
func (c *Cluster) withCertificates(r *replica) harness.Option {
	pki, name := c.security.pki, string(rune('a'+len(c.replicas)))
	r.pairs = pairs{etcd: pki.Client("etcd-" + name), nats: pki.Client("nats-" + name)}
	return harness.WithFlags(
		"--etcd-cafile="+pki.CA, "--etcd-certfile="+r.pairs.etcd.CertFile, "--etcd-keyfile="+r.pairs.etcd.KeyFile,
		"--nats-ca-file="+pki.CA, "--nats-cert-file="+r.pairs.nats.CertFile, "--nats-key-file="+r.pairs.nats.KeyFile,
	)
}

// certificateFaults are certificates that expire while in use and are then renewed.
func certificateFaults() []fault {
	return []fault{
		{"the publisher's certificate for etcd expires", onPublisher(expireForEtcd), untilTakeover},
		{"a replica's certificate for etcd expires", onOther(expireForEtcd), brief},
		{"the publisher's certificate for NATS expires", onPublisher(expireForNATS), untilNoticed},
		{"a replica's certificate for NATS expires", onOther(expireForNATS), untilNoticed},
		{"etcd's certificate expires", expireAtEtcd, brief},
	}
}

// expire lets a certificate expire while links use it. It then resets the links, because only new
// connections check the certificate.
func (c *Cluster) expire(pair harness.Pair, links ...*harness.Proxy) (renew func()) {
	c.t.Helper()
	reset := func() {
		for _, l := range links {
			l.Reset()
		}
	}
	end := time.Now().Add(shortLifetime)
	c.security.pki.Reissue(pair, end)
	reset()
	over := time.NewTimer(time.Until(end))
	defer over.Stop()
	<-over.C
	reset()
	return func() { c.security.pki.Reissue(pair, time.Now().Add(time.Hour)) }
}

func expireForEtcd(c *Cluster, r *replica) func() { return c.expire(r.pairs.etcd, r.toEtcd...) }

func expireForNATS(c *Cluster, r *replica) func() { return c.expire(r.pairs.nats, r.toNATS...) }

func expireAtEtcd(c *Cluster) func() {
	var links []*harness.Proxy
	for _, r := range c.replicas {
		links = append(links, r.toEtcd...)
	}
	return c.expire(c.security.etcd, links...)
}
