package bootstrap

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestDueTasksRun checks that a task runs when it is due, is retried soon after an error, and does
// not run in a loop if another writer reverts its result.
func TestDueTasksRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		due, start := make(chan struct{}, 1), time.Now()
		due <- struct{}{}
		var runTimes []time.Duration
		bootstrap := &Bootstrap{Config: Config{Logger: slog.New(slog.DiscardHandler)}}
		go bootstrap.repeatPeriodically(ctx, hook{every: time.Hour, trigger: due, run: func(context.Context) error {
			runTimes = append(runTimes, time.Since(start))
			switch len(runTimes) {
			case 1:
				return errors.New("not now")
			case 2, 3: // another writer reverts the result
				due <- struct{}{}
			}
			return nil
		}})
		time.Sleep(time.Minute)
		synctest.Wait()
		want := []time.Duration{0, time.Second, 2 * time.Second, 3 * time.Second}
		if !slices.Equal(runTimes, want) {
			t.Fatalf("got runs after %v, want after %v", runTimes, want)
		}
		due <- struct{}{}
		synctest.Wait()
		if want = append(want, time.Minute); !slices.Equal(runTimes, want) {
			t.Errorf("got runs after %v, want after %v", runTimes, want)
		}
		cancel()
	})
}
