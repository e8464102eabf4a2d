package bootstrap

import (
	"context"
	"errors"
	"log/slog"
	"testing"
)

// TestBootstrapWaitsForCaches checks that no step starts before the caches are loaded, so its
// timeout does not expire while it waits.
func TestBootstrapWaitsForCaches(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	asked, loaded := make(chan struct{}), make(chan struct{})
	bootstrap := New(Config{ForeignEndpoints: true, Logger: slog.New(slog.DiscardHandler), Loaded: func(ctx context.Context) error {
		close(asked)
		select {
		case <-loaded:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}})
	start := make(chan bool, len(bootstrap.hooks))
	for i := range bootstrap.hooks {
		bootstrap.hooks[i].every = 0
		bootstrap.hooks[i].run = func(context.Context) error {
			select {
			case <-loaded:
				start <- true
			default:
				start <- false
			}
			return nil
		}
	}
	done := make(chan error)
	go func() { done <- bootstrap.Run(ctx) }()
	<-asked
	close(loaded)
	for range bootstrap.hooks {
		if !<-start {
			t.Error("got a hook started before the caches were loaded, want it to wait")
		}
	}
	cancel()
	if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestBootstrapStopsWhenLoadingFails checks that no step starts if loading fails.
func TestBootstrapStopsWhenLoadingFails(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	bootstrapper := New(Config{Loaded: func(context.Context) error {
		cancel()
		return errors.New("gone")
	}})
	for i := range bootstrapper.hooks {
		bootstrapper.hooks[i].run = func(context.Context) error {
			t.Error("a step started")
			return nil
		}
	}
	if err := bootstrapper.Run(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
}
