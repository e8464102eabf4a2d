package memstore

import (
	"context"
	"fmt"
	"strings"

	"binnacle/services/apiserver/internal/storage"
)

const (
	// watchBuffer is how many batches wait for a receiver.
	watchBuffer = 16
	// maxBatch bounds the events of a batch.
	maxBatch = 1000
)

// watch follows the history from change to change, in a separate goroutine.
type watch struct {
	prefix  string
	ctx     context.Context
	cancel  context.CancelFunc
	batches chan storage.Batch
	// progressRequests has an element if progress was requested.
	progressRequests chan struct{}
	done             chan struct{}
	err              error
}

// Watch implements storage.Interface.
func (s *Store) Watch(ctx context.Context, prefix string, after int64) (storage.Watcher, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.startWatch(ctx, prefix, after, nil)
}

// Resume implements storage.Interface.
func (s *Store) Resume(ctx context.Context, prefix string, from storage.Position) (storage.Watcher, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.startWatch(ctx, prefix, from.Revision, s.checkPosition(prefix, from))
}

// checkPosition returns an error if the history does not contain a position. Compacted history is
// not compared.
func (s *Store) checkPosition(prefix string, position storage.Position) error {
	if newest := s.newestChange().revision; position.Revision > newest {
		return replacedError(position, newest)
	}
	from := max(position.Last.Revision, s.oldestRevision())
	if position.Last.Revision == 0 || from > position.Revision {
		return nil
	}
	var events []storage.Event
	for revision := from; revision <= position.Revision; revision++ {
		if v := s.changeAt(revision).version; v != nil && strings.HasPrefix(v.Key, prefix) {
			events = append(events, v.Event)
		}
	}
	_, err := position.Recheck(from, events)
	return err
}

// replacedError reports that the store has no longer the history that p belongs to.
func replacedError(p storage.Position, newest int64) error {
	return p.HistoryReplaced(newest, fmt.Sprintf("newest revision of the store is %d", newest))
}

// startWatch starts a watch for the changes after a revision. If failed is not nil, or the changes
// are compacted, the watch has already ended and its Err returns the reason.
func (s *Store) startWatch(ctx context.Context, prefix string, after int64, failed error) (storage.Watcher, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	first := s.oldestRevision()
	if failed == nil && after+1 < first {
		failed = &storage.CompactedError{OldestRevision: first}
	}
	ctx, cancel := context.WithCancel(ctx)
	w := &watch{
		prefix:           prefix,
		ctx:              ctx,
		cancel:           cancel,
		err:              failed,
		batches:          make(chan storage.Batch, watchBuffer),
		progressRequests: make(chan struct{}, 1),
		done:             make(chan struct{}),
	}
	if failed != nil {
		w.finish()
		return w, nil
	}
	if after >= first {
		go w.run(s.changeAt(min(after, s.newestChange().revision)), after)
		return w, nil
	}
	// The oldest change itself comes next.
	before := &historyEntry{revision: after, next: s.history[0], followed: make(chan struct{})}
	close(before.followed)
	go w.run(before, after)
	return w, nil
}

// Batches implements storage.Watcher.
func (w *watch) Batches() <-chan storage.Batch { return w.batches }

// Err implements storage.Watcher.
func (w *watch) Err() error { return w.err }

// Stop implements storage.Watcher. It returns when the watch's goroutine has ended.
func (w *watch) Stop() {
	w.cancel()
	<-w.done
}

// Progress implements storage.Watcher.
func (w *watch) Progress(ctx context.Context) error {
	if err := w.ctx.Err(); err != nil {
		return err
	}
	select {
	case w.progressRequests <- struct{}{}:
	default: // the response to the pending request is recent enough
	}
	return ctx.Err()
}

// run delivers the changes after the change last whose revisions are greater than after.
func (w *watch) run(last *historyEntry, after int64) {
	defer w.finish()
	for requested := false; ; {
		var events []storage.Event
		events, last = w.collectEvents(last, after)
		switch {
		case len(events) > 0:
			w.deliverBatch(storage.Batch{Events: events, Revision: last.revision})
		case requested && last.revision >= after: // after may be a revision that does not exist yet
			w.deliverBatch(storage.Batch{Revision: last.revision})
			requested = false
		default:
			select {
			case <-last.followed:
			case <-w.progressRequests:
				requested = true
			case <-w.ctx.Done():
			}
		}
		if w.ctx.Err() != nil {
			return
		}
	}
}

// collectEvents returns the watch's events after the change last, at most maxBatch, and the last
// historyEntry that it inspected. That is the newest one if there are fewer events.
func (w *watch) collectEvents(last *historyEntry, after int64) ([]storage.Event, *historyEntry) {
	var events []storage.Event
	for len(events) < maxBatch {
		select {
		case <-last.followed:
		default:
			return events, last
		}
		last = last.next
		if v := last.version; v != nil && last.revision > after && strings.HasPrefix(v.Key, w.prefix) {
			events = append(events, v.Event)
		}
	}
	return events, last
}

// deliverBatch sends a batch, unless the watch ends first.
func (w *watch) deliverBatch(b storage.Batch) {
	select {
	case w.batches <- b:
	case <-w.ctx.Done():
	}
}

// finish closes the channels of the watch.
func (w *watch) finish() {
	w.cancel()
	close(w.batches)
	close(w.done)
}
