package watchcache

import (
	"context"
	"errors"
	"fmt"

	"binnacle/services/apiserver/internal/storage"
)

// read appends the events of the next records to buf. When there are no more
// records, the watcher is armed.
func (w *Watcher) read(ctx context.Context, buf []Event) ([]Event, error) {
	var chunk [batchSize]*record
	n, following, err := w.take(&chunk)
	if err != nil {
		return nil, err
	}
	for i, r := range chunk[:n] {
		ev, ok := w.event(r)
		// A value that has to be read from the store is told alone.
		if len(buf) == cap(buf) || ok && !ev.Entry.whole() && len(buf) > 0 {
			w.cursor.Store(w.cursor.Load() - uint64(n-i))
			w.armed.Store(nil)
			following = r.revision
			break
		}
		if ok {
			if ev.Type == Deleted && w.continues(r.revision, chunk[i+1:n], following) {
				ev.Entry = r.lastBefore()
			}
			if !ev.Entry.whole() {
				if ev.Entry, err = w.complete(ctx, r, ev.Entry); err != nil {
					return nil, err
				}
			}
			buf = append(buf, ev)
		}
	}
	// All records before the following one's revision have been read.
	w.revision = max(w.revision, following-1)
	return buf, nil
}

// complete reads the value of an entry that history gave up.
func (w *Watcher) complete(ctx context.Context, r *record, e *Entry) (*Entry, error) {
	version := r.entry
	if version != e {
		version = r.prev
	}
	whole, err := w.store.cache.readOlder(ctx, version)
	var compacted *storage.CompactedError
	if errors.As(err, &compacted) {
		w.expire()
		return nil, &ExpiredError{Revision: w.revision, Oldest: r.revision}
	}
	if err != nil {
		return nil, fmt.Errorf("read %s at %d: %w", version.Key, version.Revision, err)
	}
	if whole.Revision == e.Revision {
		return whole, nil
	}
	return whole.at(e.Revision), nil
}

// expire makes the watcher one whose place is gone.
func (w *Watcher) expire() {
	if !w.expired.Swap(true) {
		w.store.metrics.terminated.Add(1)
	}
}

// continues tells whether there is more to tell of a revision: in the rest of what
// was taken, or maybe in what follows it.
func (w *Watcher) continues(revision int64, rest []*record, following int64) bool {
	for _, r := range rest {
		if r.revision != revision {
			return false
		}
		if _, ok := w.event(r); ok {
			return true
		}
	}
	return following == revision
}

// take copies the next records and moves the cursor behind them. following is
// the revision before which nothing was left out.
func (w *Watcher) take(chunk *[batchSize]*record) (n int, following int64, err error) {
	s := w.store
	applied := s.cache.Revision()
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.ended != nil {
		return 0, 0, s.ended
	}
	if w.era != s.era.Load() {
		w.expired.Store(true)
		return 0, 0, &ExpiredError{Revision: w.revision, Oldest: s.log.floor}
	}
	cursor := w.cursor.Load()
	if cursor < s.log.first {
		if w.after < s.log.floor {
			w.expire()
			return 0, 0, &ExpiredError{Revision: w.revision, Oldest: s.log.floor}
		}
		cursor = s.log.after(w.after)
	}
	for n < len(chunk) && cursor < s.log.next {
		chunk[n] = s.log.at(cursor)
		n++
		cursor++
	}
	w.cursor.Store(cursor)
	if cursor < s.log.next {
		return n, s.log.at(cursor).revision, nil
	}
	w.armed.Store(w.group.arm())
	return n, max(applied, s.live.last) + 1, nil
}

// event is what the watcher is told of a record.
func (w *Watcher) event(r *record) (Event, bool) {
	if r.revision <= w.after {
		return Event{}, false
	}
	is := r.entry != nil && w.sel.matches(r.entry)
	was := r.prev != nil && w.sel.matches(r.prev)
	switch {
	case is && was:
		return Event{Modified, r.revision, r.entry}, true
	case is:
		return Event{Added, r.revision, r.entry}, true
	case was:
		return Event{Deleted, r.revision, r.last()}, true
	}
	return Event{}, false
}
