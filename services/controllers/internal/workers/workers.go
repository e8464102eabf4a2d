// Package workers processes the keys of work queues. Every controller of the service calls it.
package workers

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"
)

// RequeueAfter is an error that asks for the same key after a fixed time, without backoff.
type RequeueAfter struct {
	After  time.Duration
	Reason string
}

// Error implements error.
func (l *RequeueAfter) Error() string { return l.Reason }

// Config configures the workers of one queue.
type Config[K comparable] struct {
	// Name is the name of the controller in logs.
	Name  string
	Queue workqueue.TypedRateLimitingInterface[K]
	Count int
	Log   *slog.Logger
	// Sync processes a key. A failed key is retried with the backoff of the queue.
	Sync func(context.Context, K) error
}

// Run processes keys until ctx ends. It shuts the queue down and returns when all workers have
// ended. Keys that still wait are dropped.
func Run[K comparable](ctx context.Context, config Config[K]) {
	var group sync.WaitGroup
	for range config.Count {
		group.Go(func() {
			for processNext(ctx, &config) {
			}
		})
	}
	<-ctx.Done()
	config.Queue.ShutDown()
	group.Wait()
}

// processNext processes one key. It returns false when the queue has shut down.
func processNext[K comparable](ctx context.Context, config *Config[K]) bool {
	key, shutdown := config.Queue.Get()
	if shutdown {
		return false
	}
	defer config.Queue.Done(key)
	if ctx.Err() != nil {
		return true
	}
	err := config.Sync(ctx, key)
	var later *RequeueAfter
	switch {
	case err == nil:
		config.Queue.Forget(key)
	case errors.As(err, &later):
		config.Log.Debug("waiting", "controller", config.Name, "key", key, "reason", err, "after", later.After)
		config.Queue.Forget(key)
		config.Queue.AddAfter(key, later.After)
	default:
		level := slog.LevelWarn
		// One warning for a key is enough. Any client can create objects whose keys always fail.
		if config.Queue.NumRequeues(key) > 0 || apierrors.IsConflict(err) || ctx.Err() != nil {
			level = slog.LevelDebug
		}
		config.Log.Log(ctx, level, "sync failed; retrying", "controller", config.Name, "key", key, "error", err)
		config.Queue.AddRateLimited(key)
	}
	return true
}
