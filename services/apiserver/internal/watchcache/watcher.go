package watchcache

import (
	"context"
	"sync/atomic"
)

// EventType says what a change did to what a watcher selects.
type EventType uint8

// The types. Bookmark ends the initial state and carries no entry.
const (
	Added EventType = iota + 1
	Modified
	Deleted
	Bookmark
)

func (t EventType) String() string {
	return [...]string{"", "ADDED", "MODIFIED", "DELETED", "BOOKMARK"}[t]
}

// Event is a change as a watcher's selection shows it.
type Event struct {
	Type     EventType
	Revision int64
	// Entry is the version that the change made; for Deleted the last version
	// that was selected, at the revision of the change. All watchers that are
	// told of a change in the same type are given the same entry, so what is
	// encoded from it can be kept with it.
	Entry *Entry
}

// Initial says what a watcher is told first.
type Initial uint8

// What a watcher is told first: nothing, or the present state as Added events
// in the order of keys, followed by a Bookmark at its revision.
const (
	InitialNone Initial = iota
	InitialState
)

// WatchOptions says what a watcher is told.
type WatchOptions struct {
	Selection
	// After is the revision after which changes are told. One that has not
	// been reached is waited for. It is not looked at with InitialState.
	After   int64
	Initial Initial
}

// batchSize is the number of events that Next returns at most when the buffer
// does not say, and that are looked at while the store is locked.
const batchSize = 64

// Watcher is a cursor into a resource's log. Next and Revision are for one
// goroutine, Nudge and Close for any.
type Watcher struct {
	store  *Store
	sel    *matcher
	group  *group
	nudge  chan struct{}
	closed atomic.Bool

	initial *initialState // nil once it was told
	cursor  uint64        // the next record to read, unless armed
	armed   *wake         // what an active watcher waits for
	after   int64         // changes up to this revision are not told
	// revision up to which everything was returned.
	revision int64
}

// initialState is the rest of the state that is told first.
type initialState struct {
	snapshot Snapshot
	from     string
}

// Watch starts a watcher, which must be closed. A start before the kept history
// is *ExpiredError.
func (s *Store) Watch(opts WatchOptions) (*Watcher, error) {
	if !s.cache.Ready() {
		return nil, ErrNotReady
	}
	applied := s.cache.Revision()
	w := &Watcher{
		store:    s,
		sel:      opts.matcher(),
		nudge:    make(chan struct{}, 1),
		after:    opts.After,
		revision: opts.After,
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended != nil {
		return nil, s.ended
	}
	if opts.Initial == InitialState {
		im := s.publish()
		sn := Snapshot{store: s, image: im, revision: max(applied, im.last)}
		w.initial = &initialState{snapshot: sn}
		w.after, w.revision = sn.revision, 0
		w.cursor = s.log.next
	} else {
		if opts.After < s.log.floor {
			return nil, &ExpiredError{Revision: opts.After, Oldest: s.log.floor}
		}
		w.cursor = s.log.after(opts.After)
	}
	w.group = s.groups.join(w.sel.scope(s.resource.Index))
	if w.cursor == s.log.next { // what does not concern it takes its place from it no more
		w.armed = w.group.arm()
	}
	return w, nil
}

// Close ends the watcher.
func (w *Watcher) Close() {
	if w.closed.Swap(true) {
		return
	}
	w.Nudge()
	w.store.mu.Lock()
	defer w.store.mu.Unlock()
	w.store.groups.leave(w.group)
}

// Nudge makes a call of Next that waits, or the next one that would, return
// without events.
func (w *Watcher) Nudge() {
	select {
	case w.nudge <- struct{}{}:
	default: // one is due already
	}
}

// Next waits until there are events and returns those that are there, up to the
// capacity of buf, which it uses. It returns none after Nudge. Errors are
// final: *ExpiredError when the watcher's place is no longer kept, ErrClosed,
// ErrStopped, or the context's.
func (w *Watcher) Next(ctx context.Context, buf []Event) ([]Event, error) {
	if cap(buf) == 0 {
		buf = make([]Event, 0, batchSize)
	}
	buf = buf[:0]
	for {
		if w.closed.Load() {
			return nil, ErrClosed
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if w.initial != nil {
			return w.nextInitial(buf), nil
		}
		if w.armed != nil {
			select {
			case <-w.armed.ch:
				w.cursor, w.armed = w.armed.seq, nil
			case <-w.nudge:
				if !w.closed.Load() {
					return buf, nil
				}
			case <-ctx.Done():
			}
			continue
		}
		var err error
		if buf, err = w.read(buf); err != nil {
			return nil, err
		}
		if len(buf) > 0 {
			return buf, nil
		}
	}
}

// Revision is the revision up to which Next has returned everything that is
// selected; 0 while the initial state is not complete. It advances although
// nothing happens.
func (w *Watcher) Revision() int64 {
	if w.initial != nil || w.armed == nil {
		return w.revision
	}
	applied := w.store.cache.Revision() // before looking whether something came
	w.store.mu.RLock()
	defer w.store.mu.RUnlock()
	if w.group.armed(w.armed) {
		w.revision = max(w.revision, applied)
	}
	return w.revision
}

// nextInitial returns the next part of the initial state.
func (w *Watcher) nextInitial(buf []Event) []Event {
	in := w.initial
	in.snapshot.selectFrom(w.sel, in.from, func(e *Entry) bool {
		if len(buf) == cap(buf) {
			in.from = e.Key
			return false
		}
		buf = append(buf, Event{Type: Added, Revision: e.Revision, Entry: e})
		in.from = e.Key + "\x00"
		return true
	})
	if len(buf) < cap(buf) {
		w.initial = nil
		w.revision = in.snapshot.revision
		buf = append(buf, Event{Type: Bookmark, Revision: w.revision})
	}
	return buf
}

// read appends the events of the next records to buf. When there are no more
// records, the watcher is armed.
func (w *Watcher) read(buf []Event) ([]Event, error) {
	var chunk [batchSize]*record
	n, following, err := w.take(&chunk)
	if err != nil {
		return nil, err
	}
	for i, r := range chunk[:n] {
		if len(buf) == cap(buf) {
			w.cursor -= uint64(n - i)
			w.armed = nil
			following = r.revision
			break
		}
		if ev, ok := w.event(r); ok {
			buf = append(buf, ev)
		}
	}
	// All records before the following one's revision have been read.
	w.revision = max(w.revision, following-1)
	return buf, nil
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
	if w.cursor < s.log.first {
		if w.after < s.log.floor {
			s.metrics.terminated.Add(1)
			return 0, 0, &ExpiredError{Revision: w.revision, Oldest: s.log.floor}
		}
		w.cursor = s.log.after(w.after)
	}
	for n < len(chunk) && w.cursor < s.log.next {
		chunk[n] = s.log.at(w.cursor)
		n++
		w.cursor++
	}
	if w.cursor < s.log.next {
		return n, s.log.at(w.cursor).revision, nil
	}
	w.armed = w.group.arm()
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
