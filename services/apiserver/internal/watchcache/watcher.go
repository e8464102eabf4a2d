package watchcache

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// WatchOptions says what a watcher is told.
type WatchOptions struct {
	Selection
	// After is the revision after which changes are told. One that has not
	// been reached is waited for. It is not looked at with InitialState.
	After   int64
	Initial Initial
	// Lost, if set, is called at most once, when the watcher's place is gone
	// while its owner does something else than Next: a client that does not read
	// holds it up. It must not wait for anything, and does not run any more once
	// Close has returned.
	Lost func()
}

// batchSize is the number of events that Next returns at most when the buffer
// does not say, and that are looked at while the store is locked.
const batchSize = 64

// Watcher is a cursor into a resource's log. Next, Poll, Waited and Revision are for
// one goroutine at a time, Nudge and Close for any.
type Watcher struct {
	store  *Store
	sel    *matcher
	group  *group
	nudge  chan struct{}
	onLost func()
	after  int64 // changes up to this revision are not told
	era    uint64

	closed, expired atomic.Bool
	calls           atomic.Uint32 // of Watch and Next, begun and ended: odd while they run
	telling         sync.Mutex    // held while onLost runs; nothing is taken under it
	stalled         stall         // of whoever looks for lost watchers

	parked   atomic.Bool // Poll has nothing, and resume is to be called
	resume   func()      // of whoever parks it, until somebody has unparked it
	parkedAt int         // in the list of the wake that is armed, which guards it

	initial atomic.Pointer[initialState] // nil once it was told
	cursor  atomic.Uint64                // the next record to read, unless armed
	armed   atomic.Pointer[wake]         // what an active watcher waits for
	// revision up to which everything was returned.
	revision int64
	// begun is when it took its place; oldest when the oldest of the changes that Next
	// returned was applied, 0 for none since then. Both in nanoseconds of the cache's
	// clock.
	begun, oldest int64
}

// initialState is the rest of the state that is told first: what a snapshot has
// from a key on, or single objects, so that who selects a few of them does not
// keep all the others. It is immutable.
type initialState struct {
	revision int64
	snapshot Snapshot
	from     string
	single   bool
	entries  []*Entry
}

// Watch starts a watcher, which must be closed. A start before the kept history
// is *ExpiredError.
func (s *Store) Watch(opts WatchOptions) (*Watcher, error) {
	if !s.cache.Ready() {
		return nil, ErrNotReady
	}
	w := &Watcher{
		store:    s.latest(),
		sel:      opts.matcher(),
		nudge:    make(chan struct{}, 1),
		onLost:   opts.Lost,
		after:    opts.After,
		revision: opts.After,
	}
	if err := w.begin(opts.Initial == InitialState); err != nil {
		return nil, err
	}
	if in := w.initial.Load(); in != nil && w.group.scope.kind != scopeAll {
		w.calls.Add(1) // who waits to go on does not wait for a client
		if picked := in.pick(w.sel); picked != nil {
			w.initial.CompareAndSwap(in, picked)
		}
		w.calls.Add(1)
	}
	return w, nil
}

// Variant is that of the resource which is watched.
func (w *Watcher) Variant() string { return w.store.Variant() }

// begin takes the watcher's place.
func (w *Watcher) begin(initial bool) error {
	s := w.store
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended != nil {
		return s.ended
	}
	if s.abandoned {
		return ErrNotReady
	}
	w.era, w.begun = s.era.Load(), s.cache.now()
	if initial {
		im := s.publish()
		sn := Snapshot{store: s, image: im, revision: max(s.cache.Revision(), im.last)}
		w.initial.Store(&initialState{revision: sn.revision, snapshot: sn})
		w.after, w.revision = sn.revision, 0
		w.cursor.Store(s.log.next)
	} else {
		if w.after < s.log.floor {
			return &ExpiredError{Revision: w.after, Oldest: s.log.floor}
		}
		w.cursor.Store(s.log.after(w.after))
	}
	w.group = s.groups.join(w.sel.scope(s.resource.Index))
	s.follow(w)
	if w.cursor.Load() == s.log.next { // what does not concern it takes its place from it no more
		w.armed.Store(w.group.arm())
	}
	return nil
}

// Close ends the watcher.
func (w *Watcher) Close() {
	if w.closed.Swap(true) {
		return
	}
	w.Nudge()
	if wk := w.armed.Load(); wk != nil {
		wk.forget(w)
	}
	w.telling.Lock()   // whoever is being told has been told
	w.telling.Unlock() //lint:ignore SA2001 it waits
	w.store.mu.Lock()
	defer w.store.mu.Unlock()
	w.store.groups.leave(w.group)
	delete(w.store.watchers, w)
}

// Nudge makes a call of Next that waits, or the next one that would, return
// without events; and so for Poll, which is due then.
func (w *Watcher) Nudge() {
	select {
	case w.nudge <- struct{}{}:
	default: // one is due already
	}
	w.unpark()
}

// Waited is how long ago the oldest of the changes that Next has just returned was
// applied here. It is false when they are all older than the watcher.
func (w *Watcher) Waited() (time.Duration, bool) {
	if w.oldest == 0 {
		return 0, false
	}
	return time.Duration(w.store.cache.now() - w.oldest), true
}

// Next waits until there are events and returns those that are there, up to the
// capacity of buf, which it uses and empties first: what was told before is not
// kept while nothing happens. It returns none after Nudge, and where Pause ended it.
// Errors are final: *ExpiredError when the watcher's place is no longer kept, ErrClosed,
// ErrStopped, or the context's.
func (w *Watcher) Next(ctx context.Context, buf []Event) ([]Event, error) {
	w.calls.Add(1)
	defer w.calls.Add(1)
	for buf = emptied(buf); ; {
		got, armed, err := w.look(ctx, buf)
		if armed == nil {
			return got, err
		}
		select {
		case <-armed.ch:
		case <-w.nudge:
			if !w.closed.Load() {
				return buf, nil
			}
		case <-ctx.Done():
		}
	}
}

// Poll is Next for whoever does not wait: where that would, ok is false, and resume is called
// once there is something for another Poll. Until then nothing may be called but Nudge and Close.
// A context that ends does not have resume called; Nudge does. resume is called by those who
// change what is watched, and must not wait for anything.
func (w *Watcher) Poll(ctx context.Context, buf []Event, resume func()) (events []Event, ok bool, err error) {
	if w.calls.Load()%2 == 0 { // else it has been parked
		w.calls.Add(1)
	}
	for buf = emptied(buf); ; {
		got, armed, err := w.look(ctx, buf)
		if armed == nil {
			w.calls.Add(1)
			return got, true, err
		}
		select {
		case <-armed.ch:
			continue
		case <-w.nudge:
			if w.closed.Load() {
				continue
			}
			w.calls.Add(1)
			return buf, true, nil
		default:
		}
		if w.park(armed, resume) {
			return nil, false, nil
		}
	}
}

// park leaves resume to the next change, or Nudge; false when there is something to do already.
func (w *Watcher) park(wk *wake, resume func()) bool {
	w.resume = resume
	w.parked.Store(true)
	if wk.park(w) && len(w.nudge) == 0 {
		return true
	}
	return !w.parked.CompareAndSwap(true, false) // unless somebody has unparked it
}

func (w *Watcher) unpark() {
	if w.parked.CompareAndSwap(true, false) {
		w.resume()
	}
}

// emptied is a buffer that keeps nothing.
func emptied(buf []Event) []Event {
	if cap(buf) == 0 {
		return make([]Event, 0, batchSize)
	}
	buf = buf[:cap(buf)]
	clear(buf)
	return buf[:0]
}

// look returns what there is, or what to wait for.
func (w *Watcher) look(ctx context.Context, buf []Event) (events []Event, armed *wake, err error) {
	w.oldest = 0
	for {
		if w.closed.Load() {
			return nil, nil, ErrClosed
		}
		if err := ctx.Err(); err != nil {
			return nil, nil, err
		}
		if w.era != w.store.era.Load() {
			w.expired.Store(true)
		}
		if w.expired.Load() {
			return nil, nil, w.expiredError()
		}
		if in := w.initial.Load(); in != nil {
			return w.nextInitial(in, buf), nil, nil
		}
		if wk := w.armed.Load(); wk != nil {
			select {
			case <-wk.ch:
				w.cursor.Store(wk.seq)
				w.armed.Store(nil)
				continue
			default:
				return nil, wk, nil
			}
		}
		if buf, err = w.read(ctx, buf); err != nil {
			return nil, nil, err
		}
		if len(buf) > 0 {
			return buf, nil, nil
		}
	}
}

// expiredError tells that the watcher's place is gone.
func (w *Watcher) expiredError() error {
	w.store.mu.RLock()
	defer w.store.mu.RUnlock()
	return &ExpiredError{Revision: w.revision, Oldest: w.store.log.floor}
}

// Revision is the revision up to which Next has returned everything that is
// selected; 0 while the initial state is not complete. It advances although
// nothing happens.
func (w *Watcher) Revision() int64 {
	wk := w.armed.Load()
	if w.initial.Load() != nil || wk == nil {
		return w.revision
	}
	applied := w.store.cache.Revision() // before looking whether something came
	w.store.mu.RLock()
	defer w.store.mu.RUnlock()
	if w.group.armed(wk) {
		w.revision = max(w.revision, applied)
	}
	return w.revision
}

// pick is the state of the objects that are selected alone; nil when Pause ended it.
func (in *initialState) pick(sel *matcher) *initialState {
	out := &initialState{revision: in.revision, single: true}
	if in.snapshot.selectAll(sel, in.from, func(e *Entry) bool {
		out.entries = append(out.entries, e)
		return true
	}) {
		return out
	}
	return nil
}

// nextInitial returns the next part of the initial state. A watcher that is cut
// meanwhile stays so.
func (w *Watcher) nextInitial(in *initialState, buf []Event) []Event {
	rest := *in
	if in.single {
		n := min(len(in.entries), cap(buf))
		for _, e := range in.entries[:n] {
			buf = append(buf, Event{Type: Added, Revision: e.Revision, Entry: e})
		}
		rest.entries = in.entries[n:]
	} else {
		whole := in.snapshot.selectAll(w.sel, in.from, func(e *Entry) bool {
			if len(buf) == cap(buf) {
				rest.from = e.Key()
				return false
			}
			buf = append(buf, Event{Type: Added, Revision: e.Revision, Entry: e})
			rest.from = e.Key() + "\x00"
			return true
		})
		if !whole { // whoever asks again begins with this part
			return emptied(buf)
		}
	}
	if len(buf) < cap(buf) {
		w.initial.CompareAndSwap(in, nil)
		w.revision = in.revision
		return append(buf, Event{Type: Bookmark, Revision: w.revision})
	}
	w.initial.CompareAndSwap(in, &rest)
	return buf
}
