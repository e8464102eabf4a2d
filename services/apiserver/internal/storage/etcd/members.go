package etcd

import (
	"context"
	"log/slog"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// members is the metrics of the members of a cluster, which are read on each scrape. They let a
// replica report on etcd where nothing else reaches it. A member that does not respond within
// sizeTimeout counts as down.
type members struct {
	client  *clientv3.Client
	cluster string
	log     *slog.Logger

	up, leader, size, used, quota, alarm *prometheus.Desc
}

func newMembers(client *clientv3.Client, cluster string, log *slog.Logger) *members {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("binnacle_etcd_member_"+name, help, append([]string{"storage_cluster_id", "endpoint"}, labels...), nil)
	}
	return &members{
		client: client, cluster: cluster, log: log,
		up:     desc("up", "1 if the etcd member responds to this replica, 0 otherwise."),
		leader: desc("leader", "1 if the etcd member leads its cluster, 0 otherwise."),
		size:   desc("size_bytes", "Size in bytes of the etcd member's database file."),
		used:   desc("used_bytes", "Used bytes of the etcd member's database. Defragmentation frees the rest of the file."),
		quota:  desc("quota_bytes", "Database size in bytes at which the etcd member rejects writes. Absent if etcd does not report it (before 3.6)."),
		alarm:  desc("alarm", "1 for each active alarm that the etcd member reports, such as NOSPACE and CORRUPT.", "alarm"),
	}
}

// Describe implements prometheus.Collector.
func (m *members) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.up, m.leader, m.size, m.used, m.quota, m.alarm} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (m *members) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), sizeTimeout)
	defer cancel()
	var group sync.WaitGroup
	for _, endpoint := range m.client.Endpoints() {
		group.Go(func() { m.collect(ctx, endpoint, out) })
	}
	group.Wait()
}

// collect reads the metrics of one member.
func (m *members) collect(ctx context.Context, endpoint string, out chan<- prometheus.Metric) {
	emit := func(d *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, append([]string{m.cluster, endpoint}, labels...)...)
	}
	status, err := m.client.Status(ctx, endpoint)
	if err != nil {
		m.log.Debug("the status of an etcd member is not known", "endpoint", endpoint, "error", err)
		emit(m.up, 0)
		return
	}
	emit(m.up, 1)
	leads := 0.0
	if status.Leader == status.Header.MemberId {
		leads = 1
	}
	emit(m.leader, leads)
	emit(m.size, float64(status.DbSize))
	emit(m.used, float64(status.DbSizeInUse))
	if status.DbSizeQuota > 0 {
		emit(m.quota, float64(status.DbSizeQuota))
	}
	for alarm := range alarmsOf(status.Errors) {
		emit(m.alarm, 1, alarm)
	}
}

// alarmsOf returns the names of the alarms in the errors of a status, which look like
// "memberID:8211f1d0f64f3269 alarm:NOSPACE ".
func alarmsOf(errs []string) map[string]bool {
	out := map[string]bool{}
	for _, e := range errs {
		for _, field := range strings.Fields(e) {
			if name, ok := strings.CutPrefix(field, "alarm:"); ok {
				out[name] = true
			}
		}
	}
	return out
}
