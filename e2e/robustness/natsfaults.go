package robustness

import (
	"errors"

	"binnacle/e2e/harness"
)

// partitionNATS partitions the publisher's NATS server from the others. Each replica is connected
// to only one server meanwhile, so that the replicas on the other servers detect missing messages.
func partitionNATS(c *Cluster) func() {
	c.t.Helper()
	publisher, _ := c.publisherAndOther()
	var links []*harness.Proxy
	var split *harness.NATS
	for i, r := range c.replicas {
		for j, link := range r.toNATS {
			if j != i%len(c.nats) {
				links = append(links, link)
			}
		}
		if r == publisher {
			split = c.nats[i%len(c.nats)]
		}
	}
	restore := c.setTraffic(harness.Cut, links...)
	harness.Eventually(c.t, waitTimeout, "all replicas to follow through one server each", func() error {
		if _, fallback := c.countGaps(); fallback > 0 {
			return errors.New("some replicas read from etcd")
		}
		return nil
	})
	join := c.setTraffic(harness.Cut, split.Routes()...)
	harness.Eventually(c.t, waitTimeout, "detection of the partition", func() error {
		if _, fallback := c.countGaps(); fallback == 0 {
			return errors.New("all replicas still follow a publisher")
		}
		return nil
	})
	return func() {
		join()
		restore()
	}
}
