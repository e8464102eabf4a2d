package task_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"binnacle/libs/task"
)

// TestRestIsProportionalToWork checks that Throttle waits four times as long as the work took,
// within bounds, and ends with its context.
func TestRestIsProportionalToWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for elapsed, want := range map[time.Duration]time.Duration{
			0:                     0,
			time.Millisecond / 5:  0,
			10 * time.Millisecond: 40 * time.Millisecond,
			time.Second:           250 * time.Millisecond,
		} {
			started := time.Now()
			time.Sleep(elapsed)
			restStarted := time.Now()
			task.Throttle(t.Context(), started)
			if got := time.Since(restStarted); got != want {
				t.Errorf("rest after %v = %v, want %v", elapsed, got, want)
			}
		}
		ctx, stop := context.WithCancel(t.Context())
		stop()
		restStarted := time.Now()
		task.Throttle(ctx, restStarted.Add(-time.Second))
		if time.Since(restStarted) > 0 {
			t.Errorf("Throttle() with a canceled context took %v, want 0", time.Since(restStarted))
		}
	})
}
