package embedded

import (
	"bytes"
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"binnacle/services/apiserver/internal/storage/etcd"
)

// messageWatcher is a zap core that detects a message.
type messageWatcher struct {
	zapcore.LevelEnabler
	message string
	once    *sync.Once
	found   chan struct{}
}

func (s messageWatcher) With([]zapcore.Field) zapcore.Core { return s }
func (s messageWatcher) Sync() error                       { return nil }
func (s messageWatcher) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	return ce.AddCore(e, s)
}

func (s messageWatcher) Write(e zapcore.Entry, _ []zapcore.Field) error {
	if strings.Contains(e.Message, s.message) {
		s.once.Do(func() { close(s.found) })
	}
	return nil
}

// TestNeededLogFilesCauseNoWarning checks that the warning about log files that etcd still needs is
// dropped. etcd repeats it every 30 s for each file beyond five, which is normal with large objects.
func TestNeededLogFilesCauseNoWarning(t *testing.T) {
	setSegmentSize() // as Start does
	size := wal.SegmentSizeBytes
	wal.SegmentSizeBytes = 64 << 10
	defer func() { wal.SegmentSizeBytes = size }()
	dir := t.TempDir()
	first, err := Start(t.Context(), Options{DataDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	for range 12 {
		if _, err := first.client.Put(t.Context(), "/registry/k", strings.Repeat("v", 60<<10)); err != nil {
			t.Fatal(err)
		}
	}
	first.Stop()
	if files, err := filepath.Glob(filepath.Join(dir, "member", "wal", "*.wal")); err != nil ||
		len(files) <= walFiles {
		t.Fatalf("log has %d files, %v, want more than %d", len(files), err, walFiles)
	}

	var log bytes.Buffer // written only by etcd, read after it has ended
	slogger := slog.New(slog.NewTextHandler(&log, nil))
	watch := messageWatcher{zapcore.WarnLevel, "failed to lock file", &sync.Once{}, make(chan struct{})}
	started, err := startMember(Options{DataDir: dir}, zap.New(zapcore.NewTee(
		etcd.ZapLogger(slogger, suppressedWarnings...).Core(), watch)))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	select {
	case <-watch.found:
	case <-ctx.Done():
		t.Error("timeout: got no check of the log files, want one")
	}
	started.stop()
	if strings.Contains(log.String(), "lock file") {
		t.Errorf("log contains warnings about locked files, want none:\n%s", log.String())
	}
}
