package backends

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"binnacle/services/apiserver/internal/security/audit"
)

// TestMain fails if a test leaves goroutines behind.
func TestMain(m *testing.M) {
	// lumberjack has a goroutine for old files that never ends.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("gopkg.in/natefinch/lumberjack%2ev2.(*Logger).millRun"))
}

// Bounds of the backends under test.
const (
	maxQueued          = 64 << 20
	maxConcurrentPosts = 8
)

// fixture holds the dependencies of backends and their output.
type fixture struct {
	t        *testing.T
	registry *prometheus.Registry
	logs     *safeBuffer
	config   Config
}

type safeBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func newFixture(t *testing.T) *fixture {
	f := &fixture{t: t, registry: prometheus.NewRegistry(), logs: &safeBuffer{}}
	f.config = Config{
		QueueBytes: maxQueued,
		MaxPosts:   maxConcurrentPosts,
		Metrics:    audit.NewMetrics(f.registry),
		Logger:     slog.New(slog.NewTextHandler(f.logs, nil)),
	}
	return f
}

// lostEvents returns the number of events that a plugin has lost.
func (f *fixture) lostEvents(plugin string) int {
	f.t.Helper()
	families, err := f.registry.Gather()
	if err != nil {
		f.t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == "apiserver_audit_error_total" && m.GetLabel()[0].GetValue() == plugin {
				return int(m.GetCounter().GetValue())
			}
		}
	}
	return 0
}

// wantLost checks the number of lost events and that the loss is logged.
func (f *fixture) wantLost(plugin string, n int) {
	f.t.Helper()
	if got := f.lostEvents(plugin); got != n {
		f.t.Errorf("%s lost %d events, want %d", plugin, got, n)
	}
	if n > 0 && !strings.Contains(f.logs.String(), "audit events lost") {
		f.t.Errorf("got log %s, want the lost events", f.logs)
	}
}

// newEvent returns the event with a number and with a request object of a size.
func newEvent(n, size int) *audit.Event {
	e := &audit.Event{
		Level:    audit.Request,
		ID:       fmt.Sprint("e", n),
		Stage:    audit.ResponseComplete,
		Verb:     "get",
		Received: time.Now(),
		Staged:   time.Now(),
	}
	if size > 0 {
		e.RequestObject = []byte(`"` + strings.Repeat("x", size) + `"`)
	}
	return e
}

// logOptions returns options of a log in mode Blocking that truncates events of more than 1 KiB.
func logOptions(path string) *LogOptions {
	return &LogOptions{
		Path:   path,
		Format: formatJSON,
		Options: Options{
			Mode:     string(Blocking),
			Version:  audit.Version,
			Batch:    BatchOptions{BufferSize: 10, MaxSize: 1},
			Truncate: TruncateOptions{MaxBatchSize: 1 << 20, MaxEventSize: 1 << 10},
		},
	}
}

// webhookOptions returns options of a webhook in mode Batch that posts to a server.
func webhookOptions(t *testing.T, server *httptest.Server) *WebhookOptions {
	t.Helper()
	cluster := map[string]any{"server": server.URL + "/audit"}
	if c := server.Certificate(); c != nil {
		cluster["certificate-authority-data"] = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
	}
	text, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": "x",
		"clusters": []any{map[string]any{"name": "c", "cluster": cluster}},
		"users":    []any{map[string]any{"name": "u", "user": map[string]any{"token": "secret"}}},
		"contexts": []any{map[string]any{"name": "x", "context": map[string]any{"cluster": "c", "user": "u"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return &WebhookOptions{
		ConfigFile:     file,
		InitialBackoff: time.Millisecond,
		Options: Options{
			Mode:     string(Batch),
			Version:  audit.Version,
			Batch:    BatchOptions{BufferSize: 100, MaxSize: 10, MaxWait: time.Millisecond},
			Truncate: TruncateOptions{MaxBatchSize: 1 << 20, MaxEventSize: 1 << 10},
		},
	}
}

func (f *fixture) newLog(o *LogOptions, out *safeBuffer) *Backend {
	f.t.Helper()
	b, err := NewLog(o, f.config, out)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = b.Close() })
	return b
}

func (f *fixture) newWebhook(o *WebhookOptions) *Backend {
	f.t.Helper()
	b, err := NewWebhook(o, f.config)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = b.Close() })
	return b
}

// runBackend runs a backend until stop is called.
func (f *fixture) runBackend(b *Backend) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- b.Run(ctx) }()
	return sync.OnceFunc(func() {
		cancel()
		<-done
	})
}

func (f *fixture) awaitTrue(description string, condition func() bool) {
	f.t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !condition() {
		if time.Now().After(deadline) {
			f.t.Fatalf("timeout waiting for: %s; log: %s", description, f.logs)
		}
		time.Sleep(time.Millisecond) // between polls of a condition
	}
}

// idsOf returns the ids of events in a text with one event per line.
func idsOf(t *testing.T, text string) (ids []string) {
	t.Helper()
	for line := range strings.Lines(text) {
		var e struct{ Kind, AuditID string }
		if err := json.Unmarshal([]byte(line), &e); err != nil || e.Kind != "Event" {
			t.Errorf("%q is not an event: %v; want no error, \"Event\"", line, err)
			continue
		}
		ids = append(ids, e.AuditID)
	}
	return ids
}
