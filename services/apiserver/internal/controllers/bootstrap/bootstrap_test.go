package bootstrap

import (
	"context"
	"errors"
	"log/slog"
	"testing"
)

// TestNothingIsDoneBeforeAllIsLoaded: work that would fail until then is not begun, so it
// is not late when everything is there.
func TestNothingIsDoneBeforeAllIsLoaded(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	asked, loaded := make(chan struct{}), make(chan struct{})
	b := New(Config{ForeignEndpoints: true, Logger: slog.New(slog.DiscardHandler), Loaded: func(ctx context.Context) error {
		close(asked)
		select {
		case <-loaded:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}})
	began := make(chan bool, len(b.hooks))
	for i := range b.hooks {
		b.hooks[i].every = 0
		b.hooks[i].run = func(context.Context) error {
			select {
			case <-loaded:
				began <- true
			default:
				began <- false
			}
			return nil
		}
	}
	done := make(chan error)
	go func() { done <- b.Run(ctx) }()
	<-asked
	close(loaded)
	for range b.hooks {
		if !<-began {
			t.Error("work began before all was loaded")
		}
	}
	cancel()
	if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestNothingIsDoneWhenLoadingFails: nor is there anything to be withdrawn.
func TestNothingIsDoneWhenLoadingFails(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	b := New(Config{Loaded: func(context.Context) error {
		cancel()
		return errors.New("gone")
	}})
	for i := range b.hooks {
		b.hooks[i].run = func(context.Context) error {
			t.Error("work began")
			return nil
		}
	}
	if err := b.Run(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
