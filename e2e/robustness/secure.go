package robustness

import (
	"time"

	"binnacle/e2e/harness"
)

// soon is how long a certificate is good that ends while it is in use.
const soon = 1500 * time.Millisecond

// security is what the servers of a cluster know each other by.
type security struct {
	pki  *harness.PKI
	etcd harness.Pair // what etcd shows
}

// pairs are what a replica shows to etcd and to NATS.
type pairs struct{ etcd, nats harness.Pair }

// startSecurely starts etcd and NATS with certificates.
func (c *Cluster) startSecurely() {
	c.t.Helper()
	c.security = &security{pki: harness.NewPKI(c.t)}
	etcd, serving := harness.StartSecureEtcd(c.t, c.security.pki)
	c.etcd, c.security.etcd = []*member{{etcd, &harness.Disk{}}}, serving
	pair := c.security.pki.Serving("nats")
	c.nats = harness.StartNATS(c.t, c.shape.nats, "--tlsverify", "--tlscert="+pair.CertFile, "--tlskey="+pair.KeyFile, "--tlscacert="+c.security.pki.CA)
}

// identify gives a replica certificates of its own.
func (c *Cluster) identify(r *replica) harness.Option {
	pki, name := c.security.pki, string(rune('a'+len(c.replicas)))
	r.pairs = pairs{etcd: pki.Client("etcd-" + name), nats: pki.Client("nats-" + name)}
	return harness.WithFlags(
		"--etcd-cafile="+pki.CA, "--etcd-certfile="+r.pairs.etcd.CertFile, "--etcd-keyfile="+r.pairs.etcd.KeyFile,
		"--nats-ca-file="+pki.CA, "--nats-cert-file="+r.pairs.nats.CertFile, "--nats-key-file="+r.pairs.nats.KeyFile,
	)
}

// certificateFaults are certificates that end while they are in use, and are renewed.
func certificateFaults() []fault {
	return []fault{
		{"the publisher's certificate for etcd ends", onPublisher(endsForEtcd), untilTakeover},
		{"a replica's certificate for etcd ends", onOther(endsForEtcd), brief},
		{"the publisher's certificate for NATS ends", onPublisher(endsForNATS), untilNoticed},
		{"a replica's certificate for NATS ends", onOther(endsForNATS), untilNoticed},
		{"etcd's certificate ends", endsAtEtcd, brief},
	}
}

// ends lets a certificate end once links use it. Connections live on, so that they are
// broken then: it is the next that is refused.
func (c *Cluster) ends(pair harness.Pair, links ...*harness.Proxy) (renew func()) {
	c.t.Helper()
	reset := func() {
		for _, l := range links {
			l.Reset()
		}
	}
	end := time.Now().Add(soon)
	c.security.pki.Reissue(pair, end)
	reset()
	over := time.NewTimer(time.Until(end))
	defer over.Stop()
	<-over.C
	reset()
	return func() { c.security.pki.Reissue(pair, time.Now().Add(time.Hour)) }
}

func endsForEtcd(c *Cluster, r *replica) func() { return c.ends(r.pairs.etcd, r.toEtcd...) }

func endsForNATS(c *Cluster, r *replica) func() { return c.ends(r.pairs.nats, r.toNATS...) }

func endsAtEtcd(c *Cluster) func() {
	var links []*harness.Proxy
	for _, r := range c.replicas {
		links = append(links, r.toEtcd...)
	}
	return c.ends(c.security.etcd, links...)
}
