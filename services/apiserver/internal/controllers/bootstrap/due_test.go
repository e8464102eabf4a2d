package bootstrap

import (
	"context"
	"errors"
	"log/slog"
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
		var ran []time.Duration
		b := &Bootstrap{Config: Config{Logger: slog.New(slog.DiscardHandler)}}
		go b.repeatPeriodically(ctx, hook{every: time.Hour, trigger: due, run: func(context.Context) error {
			ran = append(ran, time.Since(start))
			switch len(ran) {
			case 1:
				return errors.New("not now")
			case 2, 3:
				due <- struct{}{}
			}
			return nil
		}})
		time.Sleep(time.Minute)
		synctest.Wait()
		for i, at := range []time.Duration{0, 1, 2, 3} {
			if len(ran) != 4 || ran[i] != at*time.Second {
				t.Fatalf("got runs after %v; want length 4, %v", ran, at*time.Second)
			}
		}
		due <- struct{}{}
		synctest.Wait()
		if len(ran) != 5 || ran[4] != time.Minute {
			t.Errorf("got runs after %v; want length 5, %v", ran, time.Minute)
		}
		cancel()
	})
}
