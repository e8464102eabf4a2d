package encryption_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"binnacle/services/apiserver/internal/storage"
	"binnacle/services/apiserver/internal/storage/encryption"
	"binnacle/services/apiserver/internal/storage/encryption/kms"
	"binnacle/services/apiserver/internal/storage/encryption/kms/kmstest"
)

func newMetricsBuilder(t testing.TB) (*prometheus.Registry, *encryption.Builder) {
	t.Helper()
	reg := prometheus.NewRegistry()
	m, err := encryption.NewMetrics(reg)
	if err != nil {
		t.Fatal(err)
	}
	b := newBuilder(t)
	b.Metrics = m
	return reg, b
}

// TestOperationsAreCounted checks the counts of encryptions and decryptions by provider and
// outcome, and the durations of successful ones.
func TestOperationsAreCounted(t *testing.T) {
	kmsPlugin := kmstest.New(t)
	reg, b := newMetricsBuilder(t)
	b.Intervals = kms.Intervals{HealthyInterval: time.Hour, UnhealthyInterval: time.Hour}
	rawStore := newRawStore()
	const encrypted, plain, lost = "/registry/secrets/default/s", "/registry/configmaps/default/c", "/registry/secrets/default/l"
	mustCreate(t, rawStore.storeWith(openKMS(t, kmsPlugin, 5*time.Second, nil)), lost, plainValue())
	kmsPlugin.UseKey("key-2")
	kmsPlugin.RemoveKey("key-1")
	plugin := fmt.Sprintf("kms: {apiVersion: v2, name: rec, endpoint: '%s', timeout: 5s}", kmsPlugin.Endpoint())
	store := rawStore.storeWith(openWith(t, b,
		rulesYAML(ruleYAML("secrets", keysYAML("aesgcm", key32), plugin), ruleYAML("configmaps", identityTransformer)), false))
	mustCreate(t, store, encrypted, plainValue())
	mustCreate(t, store, plain, plainValue())
	if _, err := store.Create(t.Context(), plain, []byte("k8s:enc:x"), storage.WriteOptions{}); err == nil {
		t.Error("value with an encryption prefix: got it stored, want an error")
	}
	for key, bad := range map[string]bool{encrypted: false, plain: false, lost: true} {
		if _, _, err := getValue(t, store, key); (err != nil) != bad {
			t.Errorf("%s: got %v, want error %t", key, err, bad)
		}
	}
	rawStore.values[encrypted] = []byte("no prefix")
	if _, _, err := getValue(t, store, encrypted); err == nil {
		t.Error("value without a prefix: got it decrypted, want an error")
	}
	operations := kmstest.Samples(t, reg, "apiserver_storage_transformation_operations_total")
	want := map[string]float64{ // labels are in the order of their names
		"secrets OK to_storage k8s:enc:aesgcm:v1:": 1, "secrets OK to_storage k1:": 1,
		"secrets OK from_storage k8s:enc:aesgcm:v1:": 1, "secrets OK from_storage k1:": 1,
		"configmaps OK to_storage identity": 1, "configmaps OK from_storage identity": 1,
		"configmaps Unknown to_storage identity":                   1,
		"secrets InvalidArgument from_storage k8s:enc:kms:v2:rec:": 1,
		"secrets Unknown from_storage unknown":                     1,
	}
	if fmt.Sprint(operations) != fmt.Sprint(want) {
		t.Errorf("got counts %v, want %v", operations, want)
	}
	durations := kmstest.Samples(t, reg, "apiserver_storage_transformation_duration_seconds")
	want = map[string]float64{
		"to_storage k8s:enc:aesgcm:v1:": 1, "to_storage k1:": 1, "from_storage k8s:enc:aesgcm:v1:": 1, "from_storage k1:": 1,
		"to_storage identity": 1, "from_storage identity": 1,
	}
	if fmt.Sprint(durations) != fmt.Sprint(want) {
		t.Errorf("got durations %v, want %v", durations, want)
	}
}

// TestConflictingMetricsFail checks that a registered metric with the same name and another form
// is an error.
func TestConflictingMetricsFail(t *testing.T) {
	for _, name := range []string{
		"apiserver_storage_transformation_operations_total",
		"apiserver_envelope_encryption_invalid_key_id_from_status_total",
	} {
		reg := prometheus.NewRegistry()
		reg.MustRegister(prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: "Another."}))
		if _, err := encryption.NewMetrics(reg); err == nil {
			t.Errorf("%s: got no error for a conflicting metric, want one", name)
		}
	}
}

// reloadCounts returns the number of reloads of the configuration by outcome.
func reloadCounts(t testing.TB, reg *prometheus.Registry) map[string]float64 {
	t.Helper()
	out := map[string]float64{}
	for labels, n := range kmstest.Samples(t, reg, "apiserver_encryption_config_controller_automatic_reloads_total") {
		server, status, _ := strings.Cut(labels, " ")
		if server != kms.Hash("test") {
			t.Errorf("count has server %q, want %q", server, kms.Hash("test"))
		}
		out[status] = n
	}
	return out
}
