package fanout

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"binnacle/services/apiserver/internal/storage"
)

// feed reads the changes of the store after a revision. When its watch ends, it opens another watch
// at the position that it reached.
type feed struct {
	store storage.Interface
	root  string
	log   *slog.Logger
	// minReopenDelay is the minimum delay before the watch is reopened.
	minReopenDelay time.Duration

	// batches delivers until the context of the feed ends or failed has an error.
	batches chan storage.Batch
	// failed receives the error that stopped the feed: *storage.CompactedError or
	// *storage.ReplacedError.
	failed           chan error
	progressRequests chan struct{}
}

// newFeed returns a feed of everything below root. wait is the minimum delay before a watch is
// reopened.
func newFeed(store storage.Interface, root string, wait time.Duration, log *slog.Logger) *feed {
	return &feed{
		store:            store,
		root:             root,
		log:              log,
		minReopenDelay:   wait,
		batches:          make(chan storage.Batch),
		failed:           make(chan error, 1),
		progressRequests: make(chan struct{}, 1),
	}
}

// requestProgress requests a batch with the current revision, also from a watch that is not open
// yet.
func (f *feed) requestProgress() {
	select {
	case f.progressRequests <- struct{}{}:
	default:
	}
}

// run delivers the changes after a position until ctx ends.
func (f *feed) run(ctx context.Context, after storage.Position) {
	delays := backoff{minimum: f.minReopenDelay, maximum: 30 * time.Second}
	for {
		reached, err := f.deliverWatch(ctx, after)
		if ctx.Err() != nil {
			return
		}
		compacted := new(storage.CompactedError)
		replaced := new(storage.ReplacedError)
		if errors.As(err, &compacted) || errors.As(err, &replaced) {
			f.failed <- err
			return
		}
		if reached.Revision > after.Revision {
			delays.reset()
		}
		after = reached
		delay := delays.nextDelay()
		f.log.Warn("store watch ended; reconnecting", "revision", after.Revision, "wait", delay, "error", err)
		if !sleep(ctx, delay) {
			return
		}
	}
}

// deliverWatch opens a watch and delivers until it ends. It returns the position that it reached.
func (f *feed) deliverWatch(ctx context.Context, after storage.Position) (storage.Position, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	after, err := f.catchUp(ctx, after)
	if err != nil {
		return after, err
	}
	watcher, err := f.store.Resume(ctx, f.root, after)
	if err != nil {
		return after, err
	}
	defer watcher.Stop()
	var relaying sync.WaitGroup
	relaying.Go(func() { relayRequests(ctx, f.progressRequests, watcher) })
	defer func() { cancel(); relaying.Wait() }()
	for {
		select {
		case b, ok := <-watcher.Batches():
			if !ok {
				return after, watchError(watcher)
			}
			select {
			case f.batches <- b:
				after = after.Advance(b)
			case <-ctx.Done():
				return after, ctx.Err()
			}
		case <-ctx.Done():
			return after, ctx.Err()
		}
	}
}

// relayRequests forwards requests to a watch. It ignores errors: a watch that cannot send a request
// is broken and ends.
func relayRequests(ctx context.Context, progressRequests <-chan struct{}, w storage.Watcher) {
	for {
		select {
		case <-progressRequests:
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
	minimum, maximum time.Duration
	current          time.Duration
}

// reset makes the next delay the first one again.
func (b *backoff) reset() { b.current = 0 }

// nextDelay returns a delay between half and all of the current step.
func (b *backoff) nextDelay() time.Duration {
	b.current = min(max(2*b.current, b.minimum), b.maximum)
	return jitter(b.current)
}

// jitter returns a random duration between half of d and d.
func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d/2+1) }

// sleep waits for d. It returns false if ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// A store that implements storage.HistoryReader reads history directly. Other stores read it for
// watches: a store reads a long history for one watch in small steps with pauses in between, and
// reads everything that is left for each step. etcd takes 100 ms for 1,000 revisions, and longer
// for the first of many. Watches that start at different revisions share the steps. So history is
// read in slices by several concurrent watches, and the next watches start together.
const (
	// sliceRevisions is slightly less than etcd sends to a watch in one step (1,000 revisions).
	sliceRevisions = 990
	// minCatchUpLag is the minimum lag, in revisions, for concurrent watches.
	minCatchUpLag = 2 * sliceRevisions
	// catchUpWatches and catchUpBytes bound the slices that are read concurrently, by their number
	// and by their size, as far as slices are of equal size.
	catchUpWatches = 32
	catchUpBytes   = 64 << 20
	// historyReadBytes is the size of one read without watches.
	historyReadBytes = 8 << 20
)

// historyRange is a part of history: the changes after one revision up to another.
type historyRange struct {
	after  storage.Position // only the first slice knows more than the revision
	until  int64
	events []storage.Event
	bytes  int
	err    error
	done   chan struct{}
}

// catchUp delivers the changes up to about the newest revision. It returns the position that it
// reached.
func (f *feed) catchUp(ctx context.Context, after storage.Position) (storage.Position, error) {
	newest, err := f.store.VerifyHistory(ctx, after)
	if err != nil || newest <= after.Revision {
		return after, err
	}
	level := slog.LevelInfo
	if newest-after.Revision < minCatchUpLag {
		level = slog.LevelDebug
	}
	f.log.Log(ctx, level, "reading missed changes from the store", "after", after.Revision, "until", newest)
	if h, ok := f.store.(storage.HistoryReader); ok {
		if reached, ok, err := f.readHistory(ctx, h, after, newest); ok {
			return reached, err
		}
	}
	if newest-after.Revision < minCatchUpLag { // one watch suffices
		return after, nil
	}
	return f.readSlices(ctx, after, newest)
}

// readHistory delivers the changes up to newest, which the store reads without a watch. It returns
// false if the store cannot do this.
func (f *feed) readHistory(
	ctx context.Context,
	reader storage.HistoryReader,
	after storage.Position,
	newest int64,
) (storage.Position, bool, error) {
	for after.Revision < newest {
		b, ok, err := reader.Changes(ctx, f.root, after.Revision, newest, historyReadBytes)
		if !ok || err != nil {
			return after, ok, err
		}
		select {
		case f.batches <- b:
			after = after.Advance(b)
		case <-ctx.Done():
			return after, true, ctx.Err()
		}
	}
	return after, true, nil
}

// readSlices delivers the changes up to newest. Concurrent watches read them, a slice each.
func (f *feed) readSlices(ctx context.Context, after storage.Position, newest int64) (storage.Position, error) {
	ctx, cancel := context.WithCancel(ctx)
	var reading sync.WaitGroup
	defer func() { cancel(); reading.Wait() }()
	var slices []*historyRange
	next, concurrency, start := after, 1, after.Revision
	for after.Revision < newest {
		refill := len(slices) <= concurrency/2 // so that the watches of several slices begin together
		for refill && next.Revision < newest && len(slices) < concurrency {
			s := &historyRange{after: next, until: min(next.Revision+sliceRevisions, newest), done: make(chan struct{})}
			slices = append(slices, s)
			next = storage.Position{Revision: s.until, Store: after.Store}
			reading.Go(func() { defer close(s.done); s.err = s.readRange(ctx, f) })
		}
		first := slices[0]
		slices = slices[1:]
		<-first.done
		if first.err != nil {
			return after, first.err
		}
		if first.after.Revision > start { // the slice was read without a position to compare
			if _, err := f.store.VerifyHistory(ctx, after); err != nil {
				return after, err
			}
		}
		b := storage.Batch{Events: first.events, Revision: first.until}
		select {
		case f.batches <- b:
			after = after.Advance(b)
		case <-ctx.Done():
			return after, ctx.Err()
		}
		concurrency = min(catchUpWatches, max(1, catchUpBytes/max(1, first.bytes)))
	}
	return after, nil
}

// readRange reads the slice. Batches contain whole revisions, so the first revision beyond the end
// shows that the slice is complete.
func (s *historyRange) readRange(ctx context.Context, f *feed) error {
	watcher, err := f.store.Resume(ctx, f.root, s.after)
	if err != nil {
		return err
	}
	defer watcher.Stop()
	if err := watcher.Progress(ctx); err != nil { // in case nothing has happened since
		return err
	}
	for {
		select {
		case b, ok := <-watcher.Batches():
			if !ok {
				return fmt.Errorf("read changes after %d: %w", s.after.Revision, watchError(watcher))
			}
			for i := range b.Events {
				if e := &b.Events[i]; e.Revision <= s.until {
					s.events = append(s.events, *e)
					s.bytes += eventOverhead + len(e.Key) + len(e.Value)
				}
			}
			if b.Revision >= s.until {
				return nil
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// maxReplay bounds how many revisions a starting replica replays. It reads about 100,000 revisions
// per second, and is not ready before.
const maxReplay = 50_000

// HistoryBounds returns the bounds of a store's history.
type HistoryBounds interface {
	History(ctx context.Context) (oldest, newest int64, err error)
}

// SinceLastCompaction returns a function for Config.Since. It returns the revision at which a
// starting replica starts its watch history: the last compaction, 5 to 10 minutes ago. Clients
// can then resume watches that they had on another replica without a loss of events
// (specification: "A watch from the last received resourceVersion loses no events"). The function
// returns 0 if the revision cannot be determined.
func SinceLastCompaction(store HistoryBounds, log *slog.Logger) func(context.Context) int64 {
	return func(ctx context.Context) int64 {
		oldest, newest, err := store.History(ctx)
		if err != nil {
			log.Warn("watch history starts at the current revision: cannot read the last compaction", "error", err)
			return 0
		}
		if oldest > newest { // the answers belong to different histories
			return 0
		}
		return max(oldest, newest-maxReplay, 1)
	}
}
