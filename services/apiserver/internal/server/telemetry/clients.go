package telemetry

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// countedClients is the maximum number of clients whose requests are counted. The metric
	// reports the shownClients most active ones.
	countedClients = 200
	shownClients   = 20
)

// clientCounts counts the requests of the most active clients. The keys are principals, so that one
// client has one key. If there are more clients than counters, a new client takes the counter of the
// least active client and continues its count. Therefore a count may be too high, but is never too
// low.
type clientCounts struct {
	mu     sync.Mutex // leaf lock
	counts map[string]uint64
}

func newClientCounts() *clientCounts { return &clientCounts{counts: map[string]uint64{}} }

// add counts a request of a client.
func (c *clientCounts) add(client string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	count, known := c.counts[client]
	if !known && len(c.counts) >= countedClients {
		byCount := func(a, b string) int { return cmp.Compare(c.counts[a], c.counts[b]) }
		least := slices.MinFunc(slices.Collect(maps.Keys(c.counts)), byCount)
		count = c.counts[least]
		delete(c.counts, least)
	}
	c.counts[client] = count + 1
}

func clientsDesc() *prometheus.Desc {
	return prometheus.NewDesc("binnacle_client_requests_total",
		"Number of requests of the most active clients, without health probes. All service accounts of a namespace are one client.",
		[]string{"client"}, nil)
}

// Describe implements prometheus.Collector.
func (c *clientCounts) Describe(out chan<- *prometheus.Desc) { out <- clientsDesc() }

// Collect implements prometheus.Collector.
func (c *clientCounts) Collect(out chan<- prometheus.Metric) {
	c.mu.Lock()
	counts := maps.Clone(c.counts)
	c.mu.Unlock()
	names := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	})
	for _, name := range names[:min(len(names), shownClients)] {
		out <- prometheus.MustNewConstMetric(
			clientsDesc(),
			prometheus.CounterValue,
			float64(counts[name]),
			strings.ToValidUTF8(name, "?"),
		)
	}
}
