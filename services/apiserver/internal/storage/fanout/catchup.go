package fanout

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"binnacle/services/apiserver/internal/storage"
)

// A store that implements storage.HistoryReader reads history directly. Other stores read it for
// watches: a store reads a long history for one watch in small steps with pauses in between, and
// reads everything that is left for each step. etcd takes 100 ms for 1,000 revisions, and longer
// for the first of many. Watches that begin at different revisions share the steps. So history is
// read in slices by several concurrent watches, and the next watches begin together.
const (
	// sliceRevisions is slightly less than what etcd sends to a watch in one step.
	sliceRevisions = 990
	// catchUpFrom is the minimum lag, in revisions, for concurrent watches.
	catchUpFrom = 2 * sliceRevisions
	// catchUpWatches and catchUpBytes bound the slices that are read concurrently, by their number
	// and by their size, as far as slices are of equal size.
	catchUpWatches = 32
	catchUpBytes   = 64 << 20
	// stretchBytes is the size of one read without watches.
	stretchBytes = 8 << 20
)

// slice is a part of history: the changes after one revision up to another.
type slice struct {
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
	newest, err := f.store.Confirm(ctx, after)
	if err != nil || newest <= after.Revision {
		return after, err
	}
	level := slog.LevelInfo
	if newest-after.Revision < catchUpFrom {
		level = slog.LevelDebug
	}
	f.log.Log(ctx, level, "reading missed changes from the store", "after", after.Revision, "until", newest)
	if h, ok := f.store.(storage.HistoryReader); ok {
		if reached, ok, err := f.throughHistory(ctx, h, after, newest); ok {
			return reached, err
		}
	}
	if newest-after.Revision < catchUpFrom { // one watch suffices
		return after, nil
	}
	return f.bySlices(ctx, after, newest)
}

// throughHistory delivers the changes that the store reads without a watch. It returns false if the
// store cannot.
func (f *feed) throughHistory(ctx context.Context, h storage.HistoryReader, after storage.Position, newest int64) (storage.Position, bool, error) {
	for after.Revision < newest {
		b, ok, err := h.Changes(ctx, f.root, after.Revision, newest, stretchBytes)
		if !ok || err != nil {
			return after, ok, err
		}
		select {
		case f.batches <- b:
			after = after.After(b)
		case <-ctx.Done():
			return after, true, ctx.Err()
		}
	}
	return after, true, nil
}

// bySlices delivers changes read by concurrent watches.
func (f *feed) bySlices(ctx context.Context, after storage.Position, newest int64) (storage.Position, error) {
	ctx, cancel := context.WithCancel(ctx)
	var reading sync.WaitGroup
	defer func() { cancel(); reading.Wait() }()
	var ahead []*slice
	next, width, from := after, 1, after.Revision
	for after.Revision < newest {
		for refill := len(ahead) <= width/2; refill && next.Revision < newest && len(ahead) < width; {
			s := &slice{after: next, until: min(next.Revision+sliceRevisions, newest), done: make(chan struct{})}
			ahead, next = append(ahead, s), storage.Position{Revision: s.until, Store: after.Store}
			reading.Go(func() { defer close(s.done); s.err = s.read(ctx, f) })
		}
		s := ahead[0]
		ahead = ahead[1:]
		<-s.done
		if s.err != nil {
			return after, s.err
		}
		if begin := s.after.Revision; begin > from { // the slice was read with no position to compare
			if _, err := f.store.Confirm(ctx, after); err != nil {
				return after, err
			}
		}
		b := storage.Batch{Events: s.events, Revision: s.until}
		select {
		case f.batches <- b:
			after = after.After(b)
		case <-ctx.Done():
			return after, ctx.Err()
		}
		width = min(catchUpWatches, max(1, catchUpBytes/max(1, s.bytes)))
	}
	return after, nil
}

// read reads the slice. Batches contain whole revisions, so the first revision beyond the end shows
// that the slice is complete.
func (s *slice) read(ctx context.Context, f *feed) error {
	w, err := f.store.Resume(ctx, f.root, s.after)
	if err != nil {
		return err
	}
	defer w.Stop()
	if err := w.Progress(ctx); err != nil { // in case nothing has happened since
		return err
	}
	for {
		select {
		case b, ok := <-w.Batches():
			if !ok {
				return fmt.Errorf("read changes after %d: %w", s.after.Revision, watchError(w))
			}
			for i := range b.Events {
				if e := &b.Events[i]; e.Revision <= s.until {
					s.events = append(s.events, *e)
					s.bytes += eventBytes + len(e.Key) + len(e.Value)
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
