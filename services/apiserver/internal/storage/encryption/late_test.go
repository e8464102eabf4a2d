package encryption_test

import (
	"bytes"
	"context"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"binnacle/services/apiserver/internal/storage/encryption"
	"binnacle/services/apiserver/internal/storage/encryption/kms/kmstest"
)

// logBuffer is a log that tests can search.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (l *logBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

// count returns how often the log contains a text.
func (l *logBuffer) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Count(l.text.Bytes(), []byte(text))
}

// TestConfigurationIsAppliedOncePluginIsAvailable checks that a configuration whose plugin starts late is applied once the plugin
// is available, without another change of the file, and that the delay is logged once.
func TestConfigurationIsAppliedOncePluginIsAvailable(t *testing.T) {
	plugin := kmstest.New(t)
	plugin.Stop()
	file := filepath.Join(t.TempDir(), "enc.yaml")
	writeConfig(t, file, rulesYAML(ruleYAML("secrets", identityTransformer)))
	b := newBuilder(t)
	log := &logBuffer{}
	b.Intervals = shortIntervals()
	b.HealthTimeout = 50 * time.Millisecond
	b.Logger = slog.New(slog.NewTextHandler(log, nil))
	live, err := encryption.Open(t.Context(), file, true, b)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(live.Close)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- live.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	first := live.Current()
	writeConfig(t, file, kmsRule(plugin, 50*time.Millisecond))
	const failed = "encryption configuration is invalid"
	const retried = "KMS plugin is unhealthy"
	awaitTrue(t, "configuration rejected", func() bool { return log.count(failed) == 1 })
	// triggerCheck changes the directory of the file, so that the file is checked.
	triggerCheck := func() { writeConfig(t, filepath.Join(filepath.Dir(file), "another"), time.Now().String()) }
	for range 2 { // wait for two retries
		n := log.count(retried)
		awaitTrue(t, "a retry", func() bool { triggerCheck(); return log.count(retried) > n })
	}
	if live.Current() != first || log.count(failed) != 1 {
		t.Errorf("got an applied configuration: %t, and %d messages about it, want false and 1",
			live.Current() != first, log.count(failed))
	}
	plugin.Start()
	awaitTrue(t, "configuration applied", func() bool { triggerCheck(); return live.Current() != first })
}
