package workers_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"binnacle/services/controllers/internal/workers"
)

// TestRepeatedFailuresOfAKeyAreLoggedOnce checks that a key that always fails does not fill the log.
func TestRepeatedFailuresOfAKeyAreLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const attempts = 10
		var log bytes.Buffer
		config := newConfig(1)
		config.Log = slog.New(slog.NewTextHandler(&log, nil))
		ctx, cancel := context.WithCancel(t.Context())
		syncs := 0
		config.Sync = func(context.Context, string) error {
			if syncs++; syncs == attempts {
				cancel()
			}
			return errors.New("always")
		}
		config.Queue.Add("a/0")
		workers.Run(ctx, config)
		if got := strings.Count(log.String(), "sync failed"); got != 1 || syncs != attempts {
			t.Errorf("got %d log lines of %d attempts, want 1 of %d:\n%s", got, syncs, attempts, log.String())
		}
	})
}
