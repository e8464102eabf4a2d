package etcd

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// sizeTimeout bounds how long a scrape of metrics waits for etcd.
const sizeTimeout = 2 * time.Second

// mainCluster is the default name of the cluster in the metric.
const mainCluster = "etcd-0"

// databaseSize is the metric of the database size, which is read on each scrape. It is absent while
// etcd does not respond.
type databaseSize struct {
	size    func(context.Context) (int64, error)
	log     *slog.Logger
	cluster string
}

func sizeDesc() *prometheus.Desc {
	return prometheus.NewDesc("apiserver_storage_size_bytes", "[STABLE] Size in bytes of the store's database file, as reported by one of its servers.", []string{"storage_cluster_id"}, nil)
}

// Describe implements prometheus.Collector.
func (databaseSize) Describe(out chan<- *prometheus.Desc) { out <- sizeDesc() }

// Collect implements prometheus.Collector.
func (d databaseSize) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), sizeTimeout)
	defer cancel()
	size, err := d.size(ctx)
	if err != nil {
		d.log.Debug("the size of the database is not known", "error", err)
		return
	}
	out <- prometheus.MustNewConstMetric(sizeDesc(), prometheus.GaugeValue, float64(size), d.cluster)
}

// sizeOf reads the size from a random server of a client.
func sizeOf(ctx context.Context, c *clientv3.Client) (int64, error) {
	all := c.Endpoints()
	if len(all) == 0 {
		return 0, errors.New("the client has no servers")
	}
	answer, err := c.Status(ctx, all[rand.IntN(len(all))])
	if err != nil {
		return 0, err
	}
	return answer.DbSize, nil
}
