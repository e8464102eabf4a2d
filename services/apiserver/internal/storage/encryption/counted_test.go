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
	"binnacle/services/apiserver/internal/storage/encryption/kmstest"
)

func counted(t testing.TB) (*prometheus.Registry, *encryption.Builder) {
	t.Helper()
	reg := prometheus.NewRegistry()
	m, err := encryption.NewMetrics(reg)
	if err != nil {
		t.Fatal(err)
	}
	b := builder(t)
	b.Metrics = m
	return reg, b
}

// TestWhatIsCounted: each value that was sealed or opened, by which provider, and how that
// ended; how long it took, of those that succeeded.
func TestWhatIsCounted(t *testing.T) {
	p := kmstest.New(t)
	reg, b := counted(t)
	b.Pace = kms.Pace{Well: time.Hour, Ill: time.Hour}
	s := newShelf()
	const seal, other, lost = "/registry/secrets/default/s", "/registry/configmaps/default/c", "/registry/secrets/default/l"
	create(t, s.at(openKMS(t, p, 5*time.Second, nil)), lost, plain())
	p.UseKey("key-2")
	p.Lose("key-1")
	plugin := fmt.Sprintf("kms: {apiVersion: v2, name: rec, endpoint: '%s', timeout: 5s}", p.Endpoint())
	store := s.at(openWith(t, b, rules(rule("secrets", keys("aesgcm", key32), plugin), rule("configmaps", identity)), false))
	create(t, store, seal, plain())
	create(t, store, other, plain())
	if _, err := store.Create(t.Context(), other, []byte("k8s:enc:x"), storage.WriteOptions{}); err == nil {
		t.Error("what looks sealed is stored")
	}
	for key, bad := range map[string]bool{seal: false, other: false, lost: true} {
		if _, _, err := get(t, store, key); (err != nil) != bad {
			t.Errorf("%s: %v", key, err)
		}
	}
	s.values[seal] = []byte("nobody's")
	if _, _, err := get(t, store, seal); err == nil {
		t.Error("what has no prefix opens")
	}
	operations := kmstest.Samples(t, reg, "apiserver_storage_transformation_operations_total")
	want := map[string]float64{ // labels in the order of their names
		"secrets OK to_storage k8s:enc:aesgcm:v1:": 1, "secrets OK to_storage k1:": 1,
		"secrets OK from_storage k8s:enc:aesgcm:v1:": 1, "secrets OK from_storage k1:": 1,
		"configmaps OK to_storage identity": 1, "configmaps OK from_storage identity": 1,
		"configmaps Unknown to_storage identity":                   1,
		"secrets InvalidArgument from_storage k8s:enc:kms:v2:rec:": 1,
		"secrets Unknown from_storage unknown":                     1,
	}
	if fmt.Sprint(operations) != fmt.Sprint(want) {
		t.Errorf("counted %v, want %v", operations, want)
	}
	took := kmstest.Samples(t, reg, "apiserver_storage_transformation_duration_seconds")
	want = map[string]float64{
		"to_storage k8s:enc:aesgcm:v1:": 1, "to_storage k1:": 1, "from_storage k8s:enc:aesgcm:v1:": 1, "from_storage k1:": 1,
		"to_storage identity": 1, "from_storage identity": 1,
	}
	if fmt.Sprint(took) != fmt.Sprint(want) {
		t.Errorf("took %v, want %v", took, want)
	}
}

// TestMetricsOfOthers: one of another form under the same name is an error.
func TestMetricsOfOthers(t *testing.T) {
	for _, name := range []string{"apiserver_storage_transformation_operations_total", "apiserver_envelope_encryption_invalid_key_id_from_status_total"} {
		reg := prometheus.NewRegistry()
		reg.MustRegister(prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: "Another."}))
		if _, err := encryption.NewMetrics(reg); err == nil {
			t.Errorf("%s is registered twice", name)
		}
	}
}

// reloads is how often the configuration was read anew, by outcome.
func reloads(t testing.TB, reg *prometheus.Registry) map[string]float64 {
	t.Helper()
	out := map[string]float64{}
	for labels, n := range kmstest.Samples(t, reg, "apiserver_encryption_config_controller_automatic_reloads_total") {
		server, status, _ := strings.Cut(labels, " ")
		if server != kms.Hash("test") {
			t.Errorf("counted for %q", server)
		}
		out[status] = n
	}
	return out
}
