package watchcache

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"binnacle/services/apiserver/internal/cache/objects"
	"binnacle/services/apiserver/internal/cache/watchgroup"
)

// WatchOptions configures a watcher.
type WatchOptions struct {
	objects.Selection
	// AfterRevision is the revision after which changes are returned. It may be in the future.
	// It is ignored with InitialState.
	AfterRevision int64
	Initial       Initial
	// OnExpired, if set, is called once if history drops the position of a watcher whose owner is
	// blocked on a slow client, and so not in Next. It must not block. It never runs after Close
	// has returned.
	OnExpired func()
}

// Initial selects the initial events of a watcher.
type Initial uint8

// Initial events: none, or the current state as Added events in the order of keys, followed by a
// Bookmark at its revision.
const (
	InitialNone Initial = iota
	InitialState
)

// batchSize is the maximum number of events that Next returns if the buffer has no capacity, and of
// records that are read under the store's lock.
const batchSize = 64

// Watcher is a cursor into the log of a resource. Next, Poll, OldestChangeAge and Revision must not
// be called concurrently. Trigger and Close may be called at any time.
type Watcher struct {
	store       *Store
	selection   *objects.Matcher
	group       *watchgroup.Group
	trigger     chan struct{}
	onExpired   func()
	after       int64 // changes up to this revision are not returned
	incarnation uint64

	expired atomic.Bool
	// calls is incremented when Watch, Next or Poll starts and when it returns. So it is odd while
	// the owner is inside of one, and does not change while a slow client blocks the owner.
	calls     atomic.Uint32
	notifying sync.Mutex // leaf lock, held while onExpired runs
	stalled   stall      // used by the check for lost watchers

	parking watchgroup.Parking // of a Poll that found nothing

	initial atomic.Pointer[initialState]    // nil once it was returned
	cursor  atomic.Uint64                   // the next record to read, unless armed
	armed   atomic.Pointer[watchgroup.Wake] // what an active watcher waits on
	// revision is the revision up to which everything was returned.
	revision int64
	// createdAt is when the watcher was created. oldestApplied is when the oldest of the changes
	// that Next returned was applied, or 0 if all were applied before createdAt. Both are in
	// nanoseconds of the cache's clock.
	createdAt, oldestApplied int64
}

// initialState is the remaining initial state: the part of a snapshot from a key on, or single
// objects, so that a watcher of few objects does not keep the whole snapshot alive. It is
// immutable.
type initialState struct {
	revision int64
	snapshot Snapshot
	from     string
	reduced  bool
	entries  []*objects.Entry
}

// Watch starts a watcher, which must be closed. If the start is before the kept history, the error
// is *ExpiredError.
func (s *Store) Watch(opts WatchOptions) (*Watcher, error) {
	if !s.cache.Ready() {
		return nil, ErrNotReady
	}
	watcher := &Watcher{
		store:     s.latest(),
		selection: opts.Compile(),
		trigger:   make(chan struct{}, 1),
		onExpired: opts.OnExpired,
		after:     opts.AfterRevision,
		revision:  opts.AfterRevision,
	}
	if err := watcher.setPosition(opts.Initial == InitialState); err != nil {
		return nil, err
	}
	if state := watcher.initial.Load(); state != nil && !watcher.group.WatchesAll() {
		watcher.calls.Add(1) // no slow client blocks a caller that is in Pause
		if reduced := state.reduceToSelected(watcher.selection); reduced != nil {
			watcher.initial.CompareAndSwap(state, reduced)
		}
		watcher.calls.Add(1)
	}
	return watcher, nil
}

// Variant returns the variant of the watched resource.
func (w *Watcher) Variant() string { return w.store.Variant() }

// setPosition sets the watcher's position in the log.
func (w *Watcher) setPosition(initial bool) error {
	store := w.store
	store.mu.Lock()
	defer store.mu.Unlock()
	if store.ended != nil {
		return store.ended
	}
	if store.discarded {
		return ErrNotReady
	}
	w.incarnation = store.incarnation.Load()
	w.createdAt = store.cache.now()
	if initial {
		im := store.publish()
		sn := Snapshot{store: store, image: im, revision: max(store.cache.Revision(), im.Last)}
		w.initial.Store(&initialState{revision: sn.revision, snapshot: sn})
		w.after = sn.revision
		w.revision = 0
		w.cursor.Store(store.log.Next)
	} else {
		if w.after < store.log.Floor {
			return &ExpiredError{Revision: w.after, OldestRevision: store.log.Floor}
		}
		w.cursor.Store(store.log.FirstAfter(w.after))
	}
	w.group = store.groups.Join(&w.selection.Selection, store.resource.Index)
	store.registerWatcher(w)
	if w.cursor.Load() == store.log.Next { // an armed watcher keeps its position while unrelated records are added
		w.armed.Store(w.group.CurrentWake())
	}
	return nil
}

// Close ends the watcher.
func (w *Watcher) Close() {
	if w.parking.Closed.Swap(true) {
		return
	}
	w.Trigger()
	if wk := w.armed.Load(); wk != nil {
		wk.Unregister(&w.parking)
	}
	w.notifying.Lock()   // wait for a running onExpired
	w.notifying.Unlock() //lint:ignore SA2001 it waits
	w.store.mu.Lock()
	defer w.store.mu.Unlock()
	w.store.groups.Leave(w.group)
	delete(w.store.watchers, w)
}

// Trigger makes the current call of Next that waits, or the next one that would wait, return
// without events. It has the same effect on Poll, whose resume is then called.
func (w *Watcher) Trigger() {
	select {
	case w.trigger <- struct{}{}:
	default: // one is pending already
	}
	w.parking.Unpark()
}

// OldestChangeAge returns how long ago the oldest of the changes that Next has just returned was
// applied here. It returns false if all of them are older than the watcher.
func (w *Watcher) OldestChangeAge() (time.Duration, bool) {
	if w.oldestApplied == 0 {
		return 0, false
	}
	return time.Duration(w.store.cache.now() - w.oldestApplied), true
}

// Next waits for events and returns the available ones, up to the capacity of buf. It empties and
// uses buf first, so earlier events are not kept alive while nothing happens. It returns no events
// after Trigger, and if Pause ended it. Errors are final: *ExpiredError if the watcher's position
// is no longer kept, ErrClosed, ErrStopped, or the error of the context.
func (w *Watcher) Next(ctx context.Context, buf []Event) ([]Event, error) {
	w.calls.Add(1)
	defer w.calls.Add(1)
	buf = clearBuffer(buf)
	for {
		available, armed, err := w.readAvailable(ctx, buf)
		if armed == nil {
			return available, err
		}
		select {
		case <-armed.Done():
		case <-w.trigger:
			if !w.parking.Closed.Load() {
				return buf, nil
			}
		case <-ctx.Done():
		}
	}
}

// Poll returns the available events like Next, but does not wait. If Next would wait, ok is false,
// and resume is called once another Poll is due. Until then only Trigger and Close may be called.
// The end of a context does not call resume; Trigger does. resume is called by the goroutines that
// change the watched objects, and must not block.
func (w *Watcher) Poll(ctx context.Context, buf []Event, resume func()) (events []Event, ok bool, err error) {
	if w.calls.Load()%2 == 0 { // otherwise it was parked
		w.calls.Add(1)
	}
	buf = clearBuffer(buf)
	for {
		available, armed, err := w.readAvailable(ctx, buf)
		if armed == nil {
			w.calls.Add(1)
			return available, true, err
		}
		select {
		case <-armed.Done():
			continue
		case <-w.trigger:
			if w.parking.Closed.Load() {
				continue
			}
			w.calls.Add(1)
			return buf, true, nil
		default:
		}
		if w.parking.Park(armed, resume, w.trigger) {
			return nil, false, nil
		}
	}
}

// clearBuffer returns a cleared buffer without references to events.
func clearBuffer(buf []Event) []Event {
	if cap(buf) == 0 {
		return make([]Event, 0, batchSize)
	}
	buf = buf[:cap(buf)]
	clear(buf)
	return buf[:0]
}

// readAvailable returns the available events, or the wake to wait for.
func (w *Watcher) readAvailable(ctx context.Context, buf []Event) (events []Event, armed *watchgroup.Wake, err error) {
	w.oldestApplied = 0
	for {
		if w.parking.Closed.Load() {
			return nil, nil, ErrClosed
		}
		if err := ctx.Err(); err != nil {
			return nil, nil, err
		}
		if w.incarnation != w.store.incarnation.Load() {
			w.expired.Store(true)
		}
		if w.expired.Load() {
			return nil, nil, w.expiredError()
		}
		if state := w.initial.Load(); state != nil {
			return w.nextInitial(state, buf), nil, nil
		}
		if wk := w.armed.Load(); wk != nil {
			select {
			case <-wk.Done():
				w.cursor.Store(wk.Seq)
				w.armed.Store(nil)
				continue
			default:
				return nil, wk, nil
			}
		}
		if buf, err = w.readEvents(ctx, buf); err != nil {
			return nil, nil, err
		}
		if len(buf) > 0 {
			return buf, nil, nil
		}
	}
}

// expiredError returns the error of a watcher whose position is no longer in the log.
func (w *Watcher) expiredError() error {
	w.store.mu.RLock()
	defer w.store.mu.RUnlock()
	return &ExpiredError{Revision: w.revision, OldestRevision: w.store.log.Floor}
}

// Revision returns the revision up to which Next has returned everything that is selected. It is 0
// while the initial state is incomplete. It advances even if nothing happens.
func (w *Watcher) Revision() int64 {
	wk := w.armed.Load()
	if w.initial.Load() != nil || wk == nil {
		return w.revision
	}
	applied := w.store.cache.Revision() // before the check for changes
	w.store.mu.RLock()
	defer w.store.mu.RUnlock()
	if w.group.IsCurrent(wk) {
		w.revision = max(w.revision, applied)
	}
	return w.revision
}

// reduceToSelected returns the state reduced to the selected objects, or nil if Pause stopped it.
func (in *initialState) reduceToSelected(sel *objects.Matcher) *initialState {
	reduced := &initialState{revision: in.revision, reduced: true}
	completed := in.snapshot.selectAll(sel, in.from, func(e *objects.Entry) bool {
		reduced.entries = append(reduced.entries, e)
		return true
	})
	if !completed {
		return nil
	}
	return reduced
}

// nextInitial returns the next part of the initial state. CompareAndSwap keeps a concurrent
// expiration.
func (w *Watcher) nextInitial(state *initialState, buf []Event) []Event {
	remaining := *state
	if state.reduced {
		n := min(len(state.entries), cap(buf))
		for _, e := range state.entries[:n] {
			buf = append(buf, Event{Type: Added, Revision: e.Revision, Entry: e})
		}
		remaining.entries = state.entries[n:]
	} else {
		completed := state.snapshot.selectAll(w.selection, state.from, func(e *objects.Entry) bool {
			if len(buf) == cap(buf) {
				remaining.from = e.Key()
				return false
			}
			buf = append(buf, Event{Type: Added, Revision: e.Revision, Entry: e})
			remaining.from = e.Key() + "\x00"
			return true
		})
		if !completed { // the next call repeats this part
			return clearBuffer(buf)
		}
	}
	if len(buf) < cap(buf) {
		w.initial.CompareAndSwap(state, nil)
		w.revision = state.revision
		return append(buf, Event{Type: Bookmark, Revision: w.revision})
	}
	w.initial.CompareAndSwap(state, &remaining)
	return buf
}

// registerWatcher registers a watcher. The caller holds mu.
func (s *Store) registerWatcher(w *Watcher) {
	if s.watchers == nil {
		s.watchers = map[*Watcher]struct{}{}
	}
	s.watchers[w] = struct{}{}
}

// WakeCount returns how many watchers a change of an object wakes, based on the current state of
// the object.
func (s *Store) WakeCount(namespace, name string) int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.groups.WakeCount(namespace, name, s.resource.Index, func(field string) string {
		key := s.resource.Prefix + name
		if namespace != "" {
			key = s.resource.Prefix + namespace + "/" + name
		}
		if e, ok := s.live.Get(key); ok {
			return e.Fields().Get(field)
		}
		return ""
	})
}
