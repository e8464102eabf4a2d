package fanout

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"binnacle/services/apiserver/internal/storage"
)

// feed reads the changes of the store after a revision. When its watch ends, it opens another one
// at the position that it reached.
type feed struct {
	store storage.Interface
	root  string
	log   *slog.Logger
	// wait is the minimum delay before the watch is reopened.
	wait time.Duration

	// batches delivers until the context of the feed ends or failed has an error.
	batches chan storage.Batch
	// failed receives the error that ends the feed: *storage.CompactedError or
	// *storage.ReplacedError.
	failed chan error
	asks   chan struct{}
}

func newFeed(store storage.Interface, root string, wait time.Duration, log *slog.Logger) *feed {
	return &feed{
		store: store, root: root, log: log, wait: wait,
		batches: make(chan storage.Batch),
		failed:  make(chan error, 1),
		asks:    make(chan struct{}, 1),
	}
}

// ask requests a batch with the current revision, also from a watch that is not open yet.
func (f *feed) ask() {
	select {
	case f.asks <- struct{}{}:
	default:
	}
}

// run delivers the changes after a position until ctx ends.
func (f *feed) run(ctx context.Context, after storage.Position) {
	back := backoff{first: f.wait, most: 30 * time.Second}
	for {
		reached, err := f.watch(ctx, after)
		if ctx.Err() != nil {
			return
		}
		compacted, replaced := new(storage.CompactedError), new(storage.ReplacedError)
		if errors.As(err, &compacted) || errors.As(err, &replaced) {
			f.failed <- err
			return
		}
		if reached.Revision > after.Revision {
			back.reset()
		}
		after = reached
		d := back.next()
		f.log.Warn("store watch ended; reconnecting", "revision", after.Revision, "wait", d, "error", err)
		if !pause(ctx, d) {
			return
		}
	}
}

// watch delivers until the watch ends. It returns the position that it reached.
func (f *feed) watch(ctx context.Context, after storage.Position) (storage.Position, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	after, err := f.catchUp(ctx, after)
	if err != nil {
		return after, err
	}
	w, err := f.store.Resume(ctx, f.root, after)
	if err != nil {
		return after, err
	}
	defer w.Stop()
	var asking sync.WaitGroup
	asking.Go(func() { relayAsks(ctx, f.asks, w) })
	defer func() { cancel(); asking.Wait() }()
	for {
		select {
		case b, ok := <-w.Batches():
			if !ok {
				return after, watchError(w)
			}
			select {
			case f.batches <- b:
				after = after.After(b)
			case <-ctx.Done():
				return after, ctx.Err()
			}
		case <-ctx.Done():
			return after, ctx.Err()
		}
	}
}

// relayAsks forwards requests to a watch. It ignores errors: a watch that cannot send a request is
// broken and ends.
func relayAsks(ctx context.Context, asks <-chan struct{}, w storage.Watcher) {
	for {
		select {
		case <-asks:
			_ = w.Progress(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// watchError returns why a watch ended without being stopped.
func watchError(w storage.Watcher) error {
	if err := w.Err(); err != nil {
		return err
	}
	return storage.ErrUnavailable
}

// backoff computes growing delays with jitter.
type backoff struct {
	first, most time.Duration
	current     time.Duration
}

func (b *backoff) reset() { b.current = 0 }

// next returns a delay between half and all of the current step.
func (b *backoff) next() time.Duration {
	b.current = min(max(2*b.current, b.first), b.most)
	return jitter(b.current)
}

func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d/2+1) }

// pause sleeps. It returns false if ctx ends first.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
