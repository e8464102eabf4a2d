package bootstrap

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"
)

// TestWhatIsDueIsDone before its time has come, and again soon where it failed.
func TestWhatIsDueIsDone(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	due, ran, ended := make(chan struct{}), make(chan int), make(chan struct{})
	runs := 0
	b := &Bootstrap{Config: Config{Logger: slog.New(slog.DiscardHandler)}}
	go func() {
		defer close(ended)
		b.repeat(ctx, hook{every: time.Hour, due: due, run: func(context.Context) error {
			runs++
			ran <- runs
			if runs == 1 {
				return errors.New("not now")
			}
			return nil
		}})
	}()
	due <- struct{}{}
	<-ran
	if n := <-ran; n != 2 {
		t.Errorf("run %d", n)
	}
	cancel()
	<-ended
}
