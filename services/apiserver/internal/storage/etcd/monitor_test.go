package etcd_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"binnacle/services/apiserver/internal/storage/etcd"
)

// lockedBuffer is a buffer for several goroutines.
type lockedBuffer struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.String()
}

// TestMonitorWarnsWhileEtcdIsUnreachable checks that an outage is logged repeatedly, and its end
// once.
func TestMonitorWarnsWhileEtcdIsUnreachable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log lockedBuffer
		var failing atomic.Bool
		monitor := &etcd.Monitor{
			Ping: func(context.Context) error {
				if failing.Load() {
					return errors.New("connection refused")
				}
				return nil
			},
			Endpoints: []string{"https://etcd-0:2379"},
			Logger:    slog.New(slog.NewTextHandler(&log, nil)),
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- monitor.Run(ctx) }()

		time.Sleep(time.Minute)
		synctest.Wait()
		if text := log.String(); text != "" {
			t.Errorf("while etcd responds: got log %s, want none", text)
		}
		failing.Store(true)
		time.Sleep(time.Minute)
		synctest.Wait()
		text := log.String()
		if n := strings.Count(text, "etcd unreachable"); n < 6 || n > 12 {
			t.Errorf("got %d warnings in a minute, want 6 to 12:\n%s", n, text)
		}
		if !strings.Contains(text, "https://etcd-0:2379") || !strings.Contains(text, "connection refused") {
			t.Errorf("got a log without the endpoint or the reason:\n%s", text)
		}
		failing.Store(false)
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := strings.Count(log.String(), "etcd reachable again"); n != 1 {
			t.Errorf("got %d messages of recovery, want 1:\n%s", n, log.String())
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
