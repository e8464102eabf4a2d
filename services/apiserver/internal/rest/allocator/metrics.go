package allocator

import (
	"errors"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Scopes of an allocation: the client or the server chose the value.
const (
	staticScope  = "static"
	dynamicScope = "dynamic"
)

// metrics holds the metrics of allocations and repairs, named as in Kubernetes.
type metrics struct {
	addressCount, addressErrors    *prometheus.CounterVec
	addressTime                    *prometheus.HistogramVec
	portsAllocated, portsAvailable prometheus.Gauge
	portCount, portErrors          *prometheus.CounterVec
	failedAddressRepairs           prometheus.Counter
	failedPortRepairs              prometheus.Counter
	addressProblems, portProblems  *prometheus.CounterVec
}

// newMetrics registers the metrics. rangeUsage returns the usage of each range when metrics are
// scraped.
func newMetrics(registerer prometheus.Registerer, rangeUsage func() map[netip.Prefix]usage) *metrics {
	const ip, port = "kube_apiserver_clusterip_allocator_", "kube_apiserver_nodeport_allocator_"
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	result := &metrics{
		addressCount: counters(ip+"allocation_total", "[ALPHA] Number of Cluster IPs allocations", "cidr", "scope"),
		addressErrors: counters(
			ip+"allocation_errors_total",
			"[ALPHA] Number of errors trying to allocate Cluster IPs",
			"cidr",
			"scope",
		),
		addressTime: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: ip + "allocation_duration_seconds", Help: "[ALPHA] Duration in seconds to allocate a Cluster IP by ServiceCIDR",
			Buckets: []float64{0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10},
		}, []string{"cidr"}),
		portsAllocated: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: port + "allocated_ports",
			Help: "[ALPHA] Gauge measuring the number of allocated NodePorts for Services",
		}),
		portsAvailable: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: port + "available_ports",
			Help: "[ALPHA] Gauge measuring the number of available NodePorts for Services",
		}),
		portCount:  counters(port+"allocation_total", "[ALPHA] Number of NodePort allocations", "scope"),
		portErrors: counters(port+"allocation_errors_total", "[ALPHA] Number of NodePort allocation errors", "scope"),
		failedAddressRepairs: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "apiserver_clusterip_repair_reconcile_errors_total",
			Help: "[ALPHA] Number of reconciliation failures on the clusterip repair reconcile loop",
		}),
		failedPortRepairs: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "apiserver_nodeport_repair_reconcile_errors_total",
			Help: "[ALPHA] Number of reconciliation failures on the nodeport repair reconcile loop",
		}),
		addressProblems: counters("apiserver_clusterip_repair_ip_errors_total",
			"[ALPHA] Number of errors detected on clusterips by the repair loop broken down by type of error: leak, repair, full, outOfRange, duplicate, unknown, invalid",
			"type"),
		portProblems: counters("apiserver_nodeport_repair_port_errors_total",
			"[ALPHA] Number of errors detected on ports by the repair loop broken down by type of error: leak, repair, full, outOfRange, duplicate, unknown",
			"type"),
	}
	registerer.MustRegister(newUsageGauges(ip, rangeUsage), result.addressCount, result.addressErrors, result.addressTime,
		result.portsAllocated, result.portsAvailable, result.portCount, result.portErrors,
		result.failedAddressRepairs, result.failedPortRepairs, result.addressProblems, result.portProblems)
	return result
}

// observeAddress records an attempt to allocate an address.
func (m *metrics) observeAddress(cidr netip.Prefix, scope string, err error, took time.Duration) {
	label := cidr.String()
	if err != nil {
		m.addressErrors.WithLabelValues(label, scope).Inc()
		return
	}
	m.addressCount.WithLabelValues(label, scope).Inc()
	m.addressTime.WithLabelValues(label).Observe(took.Seconds())
}

// observePorts records an attempt to allocate ports. desired holds the requested port numbers; 0
// means any port.
func (m *metrics) observePorts(desired []int, err error) {
	scope := func(port int) string {
		if port == 0 {
			return dynamicScope
		}
		return staticScope
	}
	var portErr *portError
	switch {
	case errors.As(err, &portErr):
		m.portErrors.WithLabelValues(scope(desired[portErr.index])).Inc()
	case err == nil:
		for _, port := range desired {
			m.portCount.WithLabelValues(scope(port)).Inc()
		}
	}
}

// setPortUsage records that allocated ports of a range of size ports are allocated.
func (m *metrics) setPortUsage(allocated, size int) {
	m.portsAllocated.Set(float64(allocated))
	m.portsAvailable.Set(float64(size - allocated))
}

// usage is the number of addresses of a range and of those that are allocated.
type usage struct{ size, taken uint64 }

// usageGauges are computed when they are collected.
type usageGauges struct {
	taken, free *prometheus.Desc
	rangeUsage  func() map[netip.Prefix]usage
}

// newUsageGauges returns the gauges of a kind of range. rangeUsage returns the usage of each range.
func newUsageGauges(prefix string, rangeUsage func() map[netip.Prefix]usage) *usageGauges {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc(prefix+name, help, []string{"cidr"}, nil)
	}
	return &usageGauges{
		taken:      desc("allocated_ips", "[ALPHA] Gauge measuring the number of allocated IPs for Services"),
		free:       desc("available_ips", "[ALPHA] Gauge measuring the number of available IPs for Services"),
		rangeUsage: rangeUsage,
	}
}

// Describe implements prometheus.Collector.
func (g *usageGauges) Describe(out chan<- *prometheus.Desc) { out <- g.taken; out <- g.free }

// Collect implements prometheus.Collector.
func (g *usageGauges) Collect(out chan<- prometheus.Metric) {
	for p, u := range g.rangeUsage() {
		out <- prometheus.MustNewConstMetric(g.taken, prometheus.GaugeValue, float64(u.taken), p.String())
		out <- prometheus.MustNewConstMetric(g.free, prometheus.GaugeValue, float64(u.size-min(u.size, u.taken)), p.String())
	}
}
