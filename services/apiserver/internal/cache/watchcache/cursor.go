package watchcache

import (
	"context"
	"errors"
	"fmt"
	"time"

	"binnacle/services/apiserver/internal/cache/objects"
	"binnacle/services/apiserver/internal/storage"
)

// readEvents appends the events of the next records to buf. If there are no more records, it arms
// the watcher.
func (w *Watcher) readEvents(ctx context.Context, buf []Event) ([]Event, error) {
	var records [batchSize]*objects.Record
	read, following, err := w.takeRecords(&records)
	if err != nil {
		return nil, err
	}
	for i, record := range records[:read] {
		if w.missesDeletion(record) {
			w.expire()
			return nil, &ExpiredError{Revision: w.revision, OldestRevision: record.Revision}
		}
		event, ok := w.eventOf(record)
		// An event whose value must be read from the store starts the next batch, so that the
		// events before it do not wait for the read.
		readsStore := ok && !event.Entry.HasValue()
		if len(buf) == cap(buf) || readsStore && len(buf) > 0 {
			w.cursor.Store(w.cursor.Load() - uint64(read-i))
			w.armed.Store(nil)
			following = record.Revision
			break
		}
		if !ok {
			continue
		}
		if event.Type == Deleted && w.hasMoreOf(record.Revision, records[i+1:read], following) {
			event.Entry = w.receivedPreviousAt(record, record.Revision-1)
		}
		if err := w.readDroppedValues(ctx, record, &event); err != nil {
			return nil, err
		}
		buf = append(buf, event)
		if w.oldestApplied == 0 && record.AppliedAt >= w.createdAt {
			w.oldestApplied = record.AppliedAt
		}
	}
	// All records before the revision of the following one have been read.
	w.revision = max(w.revision, following-1)
	return buf, nil
}

// readDroppedValues reads the values of an event that history has dropped.
func (w *Watcher) readDroppedValues(ctx context.Context, r *objects.Record, ev *Event) (err error) {
	if !ev.Entry.HasValue() {
		if ev.Entry, err = w.readDroppedValue(ctx, r, ev.Entry); err != nil {
			return err
		}
	}
	if ev.Previous != nil && !ev.Previous.HasValue() {
		ev.Previous, err = w.readDroppedValue(ctx, r, ev.Previous)
	}
	return err
}

// readDroppedValue reads the value of an entry that history dropped.
func (w *Watcher) readDroppedValue(ctx context.Context, r *objects.Record, entry *objects.Entry) (*objects.Entry, error) {
	version := r.Entry
	if version != entry {
		version = w.receivedPrevious(r)
	}
	complete, err := w.store.cache.restoreDroppedValue(ctx, version)
	var compacted *storage.CompactedError
	if errors.As(err, &compacted) {
		w.expire()
		return nil, &ExpiredError{Revision: w.revision, OldestRevision: r.Revision}
	}
	if err != nil {
		return nil, fmt.Errorf("read %s at %d: %w", version.Key(), version.Revision, err)
	}
	if complete.Revision == entry.Revision {
		return complete, nil
	}
	return complete.CopyAt(entry.Revision), nil
}

// expire marks the watcher as expired: its position is no longer in the log.
func (w *Watcher) expire() {
	if !w.expired.Swap(true) {
		w.store.metrics.terminated.Add(1)
	}
}

// hasMoreOf reports whether the watcher may have more events of a revision, either in the rest of
// the taken records or in those that follow.
func (w *Watcher) hasMoreOf(revision int64, remaining []*objects.Record, following int64) bool {
	for _, r := range remaining {
		if r.Revision != revision {
			return false
		}
		if _, ok := w.eventOf(r); ok {
			return true
		}
	}
	return following == revision
}

// takeRecords copies the next records and moves the cursor past them. following is
// the revision before which no record is missing.
func (w *Watcher) takeRecords(records *[batchSize]*objects.Record) (taken int, following int64, err error) {
	store := w.store
	applied := store.cache.Revision()
	store.mu.RLock()
	defer store.mu.RUnlock()
	if store.ended != nil {
		return 0, 0, store.ended
	}
	if w.incarnation != store.incarnation.Load() {
		w.expired.Store(true)
		return 0, 0, &ExpiredError{Revision: w.revision, OldestRevision: store.log.Floor}
	}
	cursor := w.cursor.Load()
	if cursor < store.log.First {
		if w.after < store.log.Floor {
			w.expire()
			return 0, 0, &ExpiredError{Revision: w.revision, OldestRevision: store.log.Floor}
		}
		cursor = store.log.FirstAfter(w.after)
	}
	for taken < len(records) && cursor < store.log.Next {
		records[taken] = store.log.Record(cursor)
		taken++
		cursor++
	}
	w.cursor.Store(cursor)
	if cursor < store.log.Next {
		return taken, store.log.Record(cursor).Revision, nil
	}
	w.armed.Store(w.group.CurrentWake())
	return taken, max(applied, store.live.Last) + 1, nil
}

// eventOf returns the event of a record for the watcher, and whether there is one.
func (w *Watcher) eventOf(record *objects.Record) (Event, bool) {
	if record.Revision <= w.after {
		return Event{}, false
	}
	if w.selection.ExcludeCorrupt && record.Entry != nil && record.Entry.IsCorrupt() {
		return Event{}, false // the last readable version stays reported
	}
	prev := w.receivedPrevious(record)
	selected := record.Entry != nil && w.selection.Matches(record.Entry)
	wasSelected := prev != nil && w.selection.Matches(prev)
	switch {
	case selected && wasSelected:
		ev := Event{Type: Modified, Revision: record.Revision, Entry: record.Entry}
		if w.selection.WithPrevious {
			ev.Previous = w.receivedPreviousAt(record, record.Revision)
		}
		return ev, true
	case selected:
		return Event{Type: Added, Revision: record.Revision, Entry: record.Entry}, true
	case wasSelected:
		return Event{Type: Deleted, Revision: record.Revision, Entry: w.receivedPreviousAt(record, record.Revision)}, true
	}
	return Event{}, false
}

// receivedPrevious returns the version before a change, as the watcher received it.
func (w *Watcher) receivedPrevious(r *objects.Record) *objects.Entry {
	if w.selection.ExcludeCorrupt {
		return r.Prev.LastReadable()
	}
	return r.Prev
}

// receivedPreviousAt returns the version before a change at another revision.
func (w *Watcher) receivedPreviousAt(r *objects.Record, revision int64) *objects.Entry {
	prev := w.receivedPrevious(r)
	switch {
	case prev != r.Prev: // other watchers received another version
		return prev.UncachedCopyAt(revision)
	case revision == r.Revision:
		return r.PrevAtRevision()
	}
	return r.PrevBeforeRevision()
}

// missesDeletion reports whether an object was deleted that the watcher may have received, in a
// version that is not known any more.
func (w *Watcher) missesDeletion(r *objects.Record) bool {
	return w.selection.ExcludeCorrupt && r.Entry == nil && r.Revision > w.after && r.Prev != nil &&
		r.Prev.LastReadable() == nil && !r.Prev.NeverReadable() && w.selection.Named(r.Prev)
}

const (
	// lostCheckInterval is the minimum interval between two checks for watchers that lost their
	// position.
	lostCheckInterval = 500 * time.Millisecond
	// stalledAfter is how long a watcher may be stalled at a position for which history has dropped
	// values that the watcher may hold.
	stalledAfter = 5 * time.Second
)

// stall records since when the owner of a watcher has not called Next.
type stall struct {
	calls uint32
	since int64 // nanoseconds of the cache's clock; 0: never checked
}

// expireLostWatchers ends lost watchers after history was dropped, until ctx ends. It is idle while
// no history is dropped.
func (c *Cache) expireLostWatchers(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-c.lostCheck:
		}
		again := false
		for s := range c.routes.Load().all() {
			again = s.expireLostWatchers() || again
		}
		if again {
			c.scheduleLostCheck()
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(lostCheckInterval):
		}
	}
}

// scheduleLostCheck schedules a check for lost watchers.
func (c *Cache) scheduleLostCheck() {
	select {
	case c.lostCheck <- struct{}{}:
	default: // it is due already
	}
}

// expireLostWatchers ends watchers whose position is no longer in the log and whose owners do not
// call Next. A client that does not read stalls them, and they must not keep the memory of their
// pending events alive. When memory is short, it also ends watchers that have been stalled for a
// while at a position for which history has dropped values. It reports whether it has to check
// again.
func (s *Store) expireLostWatchers() (again bool) {
	if !s.lostCheckDue.Swap(false) {
		return false
	}
	now := s.cache.now()
	var lost []*Watcher
	s.mu.RLock()
	for w := range s.watchers {
		isLost, recheck := s.isLost(w, now)
		again = again || recheck
		if isLost {
			lost = append(lost, w)
		}
	}
	s.mu.RUnlock()
	for _, w := range lost {
		w.expireStalled()
	}
	if again {
		s.lostCheckDue.Store(true)
	}
	return again
}

// isLost reports whether a watcher must be ended, and whether it must be checked again. The caller
// holds mu.
func (s *Store) isLost(watcher *Watcher, now int64) (lost, recheck bool) {
	next, behind := watcher.nextUnread()
	if !behind || watcher.expired.Load() {
		return false, false
	}
	removed := watcher.incarnation != s.incarnation.Load() || next < s.log.First && watcher.after < s.log.Floor
	if !removed && next >= s.log.NextToReduce {
		return false, false // history still has all values that the watcher needs
	}
	calls := watcher.calls.Load()
	if calls%2 == 1 { // Next is running and finds out, unless it has just checked
		return false, true
	}
	if removed {
		return true, false
	}
	if watcher.stalled.calls != calls || watcher.stalled.since == 0 {
		watcher.stalled = stall{calls, now}
		return false, true
	}
	if now-watcher.stalled.since >= int64(stalledAfter) {
		return true, false
	}
	return false, true
}

// nextUnread returns the number of the first record that the watcher has not read. It returns false
// if no change has concerned the watcher since it read everything. The caller holds the store's mu.
func (w *Watcher) nextUnread() (seq uint64, behind bool) {
	seq = w.cursor.Load()
	if wk := w.armed.Load(); wk != nil {
		if w.group.IsCurrent(wk) {
			return 0, false
		}
		seq = wk.Seq
	}
	return seq, true
}

// expireStalled ends the watcher without its owner. It releases what the watcher holds and calls
// onExpired.
func (w *Watcher) expireStalled() {
	w.notifying.Lock()
	defer w.notifying.Unlock()
	if w.parking.Closed.Load() || w.expired.Swap(true) {
		return
	}
	if w.incarnation == w.store.incarnation.Load() {
		w.store.metrics.terminated.Add(1)
	}
	w.initial.Store(nil)
	if w.onExpired != nil {
		w.onExpired()
	}
}

// EventType is the effect of a change on the objects that a watcher selects.
type EventType uint8

// Event types. Bookmark ends the initial state and carries no entry.
const (
	Added EventType = iota + 1
	Modified
	Deleted
	Bookmark
)

// String returns the name of the type in watch responses.
func (t EventType) String() string {
	return [...]string{"", "ADDED", "MODIFIED", "DELETED", "BOOKMARK"}[t]
}

// Event is a change as seen through the selection of a watcher.
type Event struct {
	Type     EventType
	Revision int64
	// Entry is the version that the change created. For Deleted it is the last version that was
	// selected, at the revision of the change. All watchers that receive a change with the same
	// type get the same entry, so encodings can be kept with it.
	//
	// The store deletes all keys of a lease at one revision. A disconnected client resumes after
	// the last revision that it saw. So a deletion that is not the last event of its revision for a
	// watcher carries the revision before. A resuming client receives some events again and loses
	// none.
	Entry *objects.Entry
	// Previous is the version before a Modified event, at the revision of the change. It is set if
	// the selection requests it.
	Previous *objects.Entry
}
