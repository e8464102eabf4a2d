package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"binnacle/services/apiserver/internal/storage"
	"binnacle/services/apiserver/internal/storage/etcd"
	"binnacle/services/apiserver/internal/storage/etcd/etcdtest"
)

// TestNewRejectsInvalidConfig checks that New returns an error without a client or a way to watch.
func TestNewRejectsInvalidConfig(t *testing.T) {
	if _, err := etcd.New(etcd.Config{}); err == nil {
		t.Error("New without a client: got no error, want one")
	}
	cfg := etcdtest.PrivateServer(t).Config()
	cfg.Watch = nil
	if _, err := etcd.New(cfg); err == nil {
		t.Error("New without a watch client: got no error, want one")
	}
}

// TestLeasesAreShared checks that up to 1000 values of the same lifetime share a lease.
func TestLeasesAreShared(t *testing.T) {
	server := etcdtest.PrivateServer(t)
	store := etcdtest.NewStore(t, server.Config())
	ctx := t.Context()
	createWithTTL := func(n int, ttl time.Duration) {
		t.Helper()
		if _, err := store.Create(ctx, fmt.Sprintf("/registry/events/e%d", n), nil, storage.WriteOptions{TTL: ttl}); err != nil {
			t.Fatal(err)
		}
	}
	countLeases := func() int {
		t.Helper()
		response, err := server.Client().Leases(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return len(response.Leases)
	}
	for i := range 1000 {
		createWithTTL(i, time.Hour)
	}
	if n := countLeases(); n != 1 {
		t.Fatalf("got %d leases for 1000 values, want 1", n)
	}
	createWithTTL(1000, time.Hour)
	if n := countLeases(); n != 2 {
		t.Fatalf("got %d leases for 1001 values, want 2", n)
	}
	createWithTTL(1001, time.Minute)
	if n := countLeases(); n != 3 {
		t.Fatalf("value of another lifetime: got %d leases, want 3", n)
	}
	response, err := server.Client().Leases(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range response.Leases {
		ttl, err := server.Client().TimeToLive(ctx, l.ID)
		if err != nil {
			t.Fatal(err)
		}
		if g := ttl.GrantedTTL; g != 3660 && g != 63 {
			t.Errorf("got a lease of %d s, want 3660 or 63", g)
		}
	}
}

// TestLostLeaseIsReplaced checks that a lease that no longer exists in etcd is replaced without an
// error.
func TestLostLeaseIsReplaced(t *testing.T) {
	server := etcdtest.PrivateServer(t)
	store := etcdtest.NewStore(t, server.Config())
	for i := range 2 {
		if _, err := store.Create(t.Context(), fmt.Sprintf("/registry/events/e%d", i), nil,
			storage.WriteOptions{TTL: time.Hour}); err != nil {
			t.Fatal(err)
		}
		response, err := server.Client().Leases(t.Context())
		if err != nil || len(response.Leases) != 1 {
			t.Fatalf("got leases %v, %v, want one", response, err)
		}
		if _, err := server.Client().Revoke(t.Context(), response.Leases[0].ID); err != nil {
			t.Fatal(err)
		}
	}
}

// TestWatchResumesAfterBreaks checks that a watch delivers each event once, in order, although its
// connection breaks repeatedly.
func TestWatchResumesAfterBreaks(t *testing.T) {
	t.Parallel()
	server := etcdtest.ListeningServer(t)
	proxy := etcdtest.NewProxy(t, server.Endpoint())
	direct := etcdtest.NewStore(t, server.Config())
	overProxy := etcdtest.OpenEmptied(t, proxy.Endpoint())

	start, err := direct.Revision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	watcher, err := overProxy.Watch(t.Context(), "/registry/", start)
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Stop()
	last, wrote := start, start
	receiveAll := func() {
		t.Helper()
		for last < wrote {
			b := awaitValue(t, "events", watcher.Batches())
			for _, e := range b.Events {
				if e.Revision != last+1 {
					t.Fatalf("got revision %d, want %d", e.Revision, last+1)
				}
				last = e.Revision
			}
		}
	}
	for i := range 6 {
		if i%2 == 1 {
			proxy.Cut()
		}
		for j := range 5 {
			if wrote, err = direct.Create(t.Context(),
				fmt.Sprintf("/registry/pods/%d-%d", i, j), nil, storage.WriteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		proxy.Heal()
		receiveAll()
	}
	// A progress request that is lost with its stream is repeated.
	proxy.Cut()
	if err := watcher.Progress(t.Context()); err != nil {
		t.Fatal(err)
	}
	proxy.Heal()
	if b := awaitValue(t, "progress", watcher.Batches()); len(b.Events) != 0 || b.Revision != wrote {
		t.Fatalf("got %+v, want progress at %d", b, wrote)
	}
}

// TestUnreachableEtcdIsReported checks that every operation reports an outage, and works again
// after it.
func TestUnreachableEtcdIsReported(t *testing.T) {
	t.Parallel()
	server := etcdtest.ListeningServer(t)
	proxy := etcdtest.NewProxy(t, server.Endpoint())
	store := etcdtest.OpenEmptied(t, proxy.Endpoint())
	if err := store.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	proxy.Cut()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	wantOutage := func(operation string, err error) {
		t.Helper()
		if !errors.Is(err, storage.ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: got %v, want an outage", operation, err)
		}
	}
	_, err := store.Create(ctx, "/registry/pods/a", nil, storage.WriteOptions{})
	wantOutage("create", err)
	_, err = store.Update(ctx, "/registry/pods/a", nil, 1, storage.WriteOptions{TTL: time.Hour})
	wantOutage("update", err)
	_, err = store.Delete(ctx, "/registry/pods/a", 1)
	wantOutage("delete", err)
	_, err = store.Revision(ctx)
	wantOutage("revision", err)
	wantOutage("ping", store.Ping(ctx))

	proxy.Heal()
	healed, done := context.WithTimeout(t.Context(), patience)
	defer done()
	if _, err := store.Revision(healed); err != nil {
		t.Errorf("after the outage: %v", err)
	}
}

// TestMetricsAreLabelledByResource checks the labels of the metrics of operations, and which
// results count as errors.
func TestMetricsAreLabelledByResource(t *testing.T) {
	reg := prometheus.NewRegistry()
	cfg := etcdtest.PrivateServer(t).Config()
	cfg.Metrics = reg
	store := etcdtest.NewStore(t, cfg)
	ctx := t.Context()
	for _, key := range []string{
		"/registry/pods/ns/a", "/registry/services/specs/ns/a", "/registry/services/endpoints/ns/a",
		"/registry/apiextensions.k8s.io/customresourcedefinitions/a", "/elsewhere/a",
	} {
		if _, err := store.Create(ctx, key, nil, storage.WriteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := store.Get(ctx, "/registry/pods/ns/b", 0); !errors.Is(err, storage.ErrNotFound) {
		t.Fatal(err)
	}
	if _, err := store.Create(ctx, "/registry/pods/ns/b",
		make([]byte, 4<<20), storage.WriteOptions{}); !errors.Is(err, storage.ErrTooLarge) {
		t.Fatal(err)
	}
	got, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	series := map[string]float64{}
	for _, family := range got {
		for _, m := range family.Metric {
			name := family.GetName()
			for _, l := range m.Label {
				name += " " + l.GetValue()
			}
			series[name] = m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	for name := range series { // labelled with the address of etcd
		if strings.HasPrefix(name, "apiserver_storage_size_bytes ") {
			delete(series, name)
			series["apiserver_storage_size_bytes"] = 0
		}
	}
	want := map[string]float64{
		"apiserver_storage_size_bytes":          0,
		"etcd_lease_object_counts":              0,
		"etcd_request_errors_total create pods": 1,
	}
	for labels, n := range map[string]float64{
		"create apiextensions.k8s.io/customresourcedefinitions": 1,
		"create other":              1,
		"create pods":               2,
		"create services/endpoints": 1,
		"create services/specs":     1,
		"get pods":                  1,
	} {
		want["etcd_requests_total "+labels] = n
		want["etcd_request_duration_seconds "+labels] = n
	}
	if !reflect.DeepEqual(series, want) {
		t.Errorf("got metrics %v, want %v", series, want)
	}
	if _, err := etcd.New(cfg); err == nil {
		t.Error("second registration of the metrics: got no error, want one")
	}
}
