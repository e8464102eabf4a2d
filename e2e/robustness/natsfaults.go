package robustness

import (
	"errors"

	"binnacle/e2e/harness"
)

// splitNATS splits the publisher's server of NATS from the others, whose clients
// notice that they hear nothing any more. Each replica has a server of its own
// meanwhile.
func splitNATS(c *Cluster) func() {
	c.t.Helper()
	publisher, _ := c.roles()
	var ways []*harness.Proxy
	var split *harness.NATS
	for i, r := range c.replicas {
		for j, way := range r.toNATS {
			if j != i%len(c.nats) {
				ways = append(ways, way)
			}
		}
		if r == publisher {
			split = c.nats[i%len(c.nats)]
		}
	}
	restore := c.cut(harness.Cut, ways...)
	harness.Eventually(c.t, patience, "all replicas follow by their own servers", func() error {
		if _, away := c.gaps(); away > 0 {
			return errors.New("some read from etcd")
		}
		return nil
	})
	join := c.cut(harness.Cut, split.Routes()...)
	harness.Eventually(c.t, patience, "a split noticed", func() error {
		if _, away := c.gaps(); away == 0 {
			return errors.New("all follow a publisher")
		}
		return nil
	})
	return func() {
		join()
		restore()
	}
}
