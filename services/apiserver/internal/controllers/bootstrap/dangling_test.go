package bootstrap

import (
	"log/slog"
	"testing"
	"time"
)

// TestCompetingStatusWritesAreLimited checks that the status of a flow schema is written at most
// six times a minute, which does not affect other schemas.
func TestCompetingStatusWritesAreLimited(t *testing.T) {
	now := time.Now()
	controller := NewDanglingController(nil, slog.New(slog.DiscardHandler))
	controller.Now = func() time.Time { return now }
	allowedWrites := func(name string, times int) (allowed int) {
		for range times {
			if controller.allowWrite(name) {
				allowed++
			}
		}
		return allowed
	}
	if got := allowedWrites("a", 10); got != 6 {
		t.Errorf("got %d writes of a in the first minute, want 6", got)
	}
	if got := allowedWrites("b", 1); got != 1 {
		t.Errorf("got %d writes of b after those of a, want 1", got)
	}
	now = now.Add(danglingWindow + time.Second)
	if got := allowedWrites("a", 10); got != 6 {
		t.Errorf("got %d writes of a in the second minute, want 6", got)
	}
}
