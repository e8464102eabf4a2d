package robustness

import (
	"errors"

	"binnacle/e2e/harness"
)

// partitionNATS partitions the publisher's NATS server from the others. Each replica is connected
// to only one server meanwhile, so that the replicas on the other servers detect missing messages.
func partitionNATS(cluster *Cluster) func() {
	cluster.t.Helper()
	publisher, _ := cluster.publisherAndOther()
	var links []*harness.Proxy
	var split *harness.NATS
	for i, r := range cluster.replicas {
		for j, link := range r.toNATS {
			if j != i%len(cluster.nats) {
				links = append(links, link)
			}
		}
		if r == publisher {
			split = cluster.nats[i%len(cluster.nats)]
		}
	}
	restore := cluster.setTraffic(harness.Cut, links...)
	harness.Eventually(cluster.t, waitTimeout, "all replicas to follow through one server each", func() error {
		if _, fallback := cluster.countGaps(); fallback > 0 {
			return errors.New("some replicas read from etcd")
		}
		return nil
	})
	join := cluster.setTraffic(harness.Cut, split.Routes()...)
	harness.Eventually(cluster.t, waitTimeout, "detection of the partition", func() error {
		if _, fallback := cluster.countGaps(); fallback == 0 {
			return errors.New("all replicas still follow a publisher")
		}
		return nil
	})
	return func() {
		join()
		restore()
	}
}
