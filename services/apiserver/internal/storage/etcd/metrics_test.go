package etcd_test

import (
	"context"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"binnacle/services/apiserver/internal/storage"
	"binnacle/services/apiserver/internal/storage/etcd"
	"binnacle/services/apiserver/internal/storage/etcd/etcdtest"
)

// gatherValues returns the values of all series by the metric name and label values.
func gatherValues(t *testing.T, r *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, f := range families {
		for _, m := range f.Metric {
			values[operationSeries(f, m)] = m.Counter.GetValue() + m.Gauge.GetValue()
		}
	}
	return values
}

// operationSeries returns the name and the label values of a series, separated by spaces.
func operationSeries(f *dto.MetricFamily, m *dto.Metric) string {
	name := f.GetName()
	for _, l := range m.Label {
		name += " " + l.GetValue()
	}
	return name
}

// TestEtcdCallsAreCounted checks the metrics of calls by method and by resource.
func TestEtcdCallsAreCounted(t *testing.T) {
	registry := prometheus.NewRegistry()
	client, err := etcd.Dial(etcd.DialOptions{Servers: []string{etcdtest.ListeningServer(t).Endpoint()}, Metrics: registry})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	store := etcdtest.NewStore(t, etcd.Config{Client: client, Metrics: registry, Prefix: "/registry"})
	for _, key := range []string{"/registry/pods/a/b", "/registry/services/specs/a/b", "/registry/ex.test/things/a/b"} {
		if _, _, err := store.Get(t.Context(), key, 0); err != storage.ErrNotFound { //nolint:errorlint // returned unwrapped
			t.Fatal(err)
		}
	}
	got := gatherValues(t, registry)
	for name, least := range map[string]float64{
		"grpc_client_started_total Range etcdserverpb.KV unary":    3,
		"grpc_client_handled_total OK Range etcdserverpb.KV unary": 3,
		"etcd_requests_total get pods":                             1,
		"etcd_requests_total get services/specs":                   1,
		"etcd_requests_total get ex.test/things":                   1,
		"apiserver_storage_size_bytes etcd-0":                      1,
	} {
		if got[name] < least {
			t.Errorf("%s: got %v, want at least %v in %v", name, got[name], least, got)
		}
	}
}

// TestSizeIsMissingWithoutEtcd checks that a store whose etcd does not report its size omits only that
// metric.
func TestSizeIsMissingWithoutEtcd(t *testing.T) {
	registry := prometheus.NewRegistry()
	client, err := etcd.Dial(etcd.DialOptions{Servers: []string{etcdtest.ListeningServer(t).Endpoint()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	etcdtest.NewStore(t, etcd.Config{
		Client:  client,
		Metrics: registry,
		Size:    func(context.Context) (int64, error) { return 0, storage.ErrUnavailable },
	})
	if _, exists := gatherValues(t, registry)["apiserver_storage_size_bytes etcd-0"]; exists {
		t.Error("unreachable etcd: got a size, want none")
	}
}

// TestMetricsReportEachMember checks the metrics of a member with an alarm, and of one that does not
// respond.
func TestMetricsReportEachMember(t *testing.T) {
	server := etcdtest.ListeningServer(t)
	down := etcdtest.NewProxy(t, server.Endpoint())
	registry := prometheus.NewRegistry()
	client, err := etcd.Dial(etcd.DialOptions{Servers: []string{server.Endpoint(), down.Endpoint()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	etcdtest.NewStore(t, etcd.Config{Client: client, Metrics: registry})
	etcdtest.FillQuota(t, server)
	down.Cut()
	got := gatherValues(t, registry)
	prefix := "binnacle_etcd_member_"
	for series, want := range map[string]float64{
		"up " + server.Endpoint():            1,
		"leader " + server.Endpoint():        1,
		"alarm NOSPACE " + server.Endpoint(): 1,
		"up " + down.Endpoint():              0,
	} {
		name, labels, _ := strings.Cut(series, " ")
		if value, exists := got[prefix+name+" "+labels+" etcd-0"]; !exists || value != want {
			t.Errorf("%s: got %v (%v), want %v in %v", series, value, exists, want, got)
		}
	}
	size, quota := got[prefix+"size_bytes "+server.Endpoint()+" etcd-0"], got[prefix+"quota_bytes "+server.Endpoint()+" etcd-0"]
	if size <= 0 || quota <= size {
		t.Errorf("database size %v, quota %v, want a size between 0 and the quota", size, quota)
	}
}
