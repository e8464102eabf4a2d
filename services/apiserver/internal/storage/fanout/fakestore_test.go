package fanout

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"sync"

	"binnacle/services/apiserver/internal/storage"
)

const testRoot = "/registry/"

// fakeStore is an in-memory store with its whole history that can be made to fail. It implements
// only what fanout uses.
type fakeStore struct {
	storage.Interface

	mu           sync.Mutex
	history      []storage.Event
	revision     int64
	compacted    int64
	down         bool          // every call fails
	stalled      bool          // watches deliver nothing
	changed      chan struct{} // closed at the next change of anything above
	broken       chan struct{} // closed to end running watches
	watches      int
	restorations int // number of restorations, which names the history
}

func newFakeStore() *fakeStore {
	return &fakeStore{revision: 10, changed: make(chan struct{}), broken: make(chan struct{})}
}

func (s *fakeStore) update(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
	close(s.changed)
	s.changed = make(chan struct{})
}

// write sets n keys to values of the given size at one revision.
func (s *fakeStore) write(keys, size int) int64 {
	var rev int64
	s.update(func() {
		s.revision++
		rev = s.revision
		for i := range keys {
			event := storage.Event{
				Type:           storage.Created,
				Revision:       rev,
				CreateRevision: rev,
				Key:            fmt.Sprintf("%sthings/%d-%d", testRoot, rev, i),
				Value:          make([]byte, size),
			}
			copy(event.Value, fmt.Sprint(s.restorations, event.Key))
			switch {
			case rev%3 == 1:
				event.Type = storage.Updated
				event.CreateRevision = rev - 1
			case rev%3 == 2 && size < 1000:
				event.Type = storage.Deleted
				event.CreateRevision = 0
				event.Value = nil
				if s.restorations > 0 { // otherwise all histories would have the same deletion
					event.Key = fmt.Sprintf("%s-%d", event.Key, s.restorations)
				}
			}
			s.history = append(s.history, event)
		}
	})
	return rev
}

// writeOutsideRoot makes a revision outside the root.
func (s *fakeStore) writeOutsideRoot() { s.update(func() { s.revision++ }) }

func (s *fakeStore) compact() { s.update(func() { s.compacted = s.revision }) }

func (s *fakeStore) setDown(down bool)       { s.update(func() { s.down = down }) }
func (s *fakeStore) setStalled(stalled bool) { s.update(func() { s.stalled = stalled }) }

func (s *fakeStore) breakWatches() {
	s.update(func() {
		close(s.broken)
		s.broken = make(chan struct{})
	})
}

func (s *fakeStore) newest() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.revision
}

func (s *fakeStore) runningWatches() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.watches
}

// historySince returns the history after a revision.
func (s *fakeStore) historySince(after int64) []storage.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]storage.Event(nil), s.history[s.indexLocked(after):]...)
}

func (s *fakeStore) indexLocked(after int64) int {
	return sort.Search(len(s.history), func(i int) bool { return s.history[i].Revision > after })
}

// VerifyHistory compares the position with the history that is not compacted.
func (s *fakeStore) VerifyHistory(_ context.Context, at storage.Position) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return 0, storage.ErrUnavailable
	}
	return s.revision, s.confirmLocked(at)
}

func (s *fakeStore) confirmLocked(at storage.Position) error {
	if at.Revision > s.revision {
		return at.HistoryReplaced(s.revision, "it is behind")
	}
	return s.recheckLocked(at, s.compacted)
}

// recheckLocked compares a position with the changes since a revision.
func (s *fakeStore) recheckLocked(at storage.Position, since int64) error {
	from := max(at.Last.Revision, since)
	if at.Last.Revision == 0 || from > at.Revision {
		return nil
	}
	_, err := at.Recheck(from, s.history[s.indexLocked(from-1):])
	return err
}

// contains reports whether a position is in the history, compacted or not.
func (s *fakeStore) contains(at storage.Position) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return at.Revision <= s.revision && s.recheckLocked(at, 0) == nil
}

// position returns the position after a load.
func (s *fakeStore) position() storage.Position {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := storage.Position{Revision: s.revision, ReadAt: s.revision}
	if n := len(s.history); n > 0 {
		p.Last = storage.ChangeIDOf(&s.history[n-1])
	}
	return p
}

// restore returns the store to its state n revisions ago, as a backup does, and then writes the
// given number of other changes.
func (s *fakeStore) restore(back, writes int64) {
	s.update(func() {
		s.revision = max(s.revision-back, 11)
		s.compacted = min(s.compacted, s.revision)
		s.history = slices.Clone(s.history[:s.indexLocked(s.revision)])
		s.restorations++
		close(s.broken)
		s.broken = make(chan struct{})
	})
	for range writes {
		s.write(1, 51)
	}
}

// Resume is Watch with a check of the position.
func (s *fakeStore) Resume(ctx context.Context, _ string, from storage.Position) (storage.Watcher, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.confirmLocked(from); err != nil && !s.down {
		return nil, err
	}
	return s.watchLocked(ctx, from.Revision)
}

func (s *fakeStore) Revision(context.Context) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return 0, storage.ErrUnavailable
	}
	return s.revision, nil
}

// List returns the created and updated values of the history, including deleted ones.
func (s *fakeStore) List(_ context.Context, _ string, listOptions storage.ListOptions) (storage.ListResult, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return storage.ListResult{}, storage.ErrUnavailable
	}
	res := storage.ListResult{Revision: s.revision}
	if listOptions.Revision != 0 {
		if listOptions.Revision < s.compacted {
			return res, &storage.CompactedError{OldestRevision: s.compacted}
		}
		res.Revision = listOptions.Revision
	}
	var values []storage.KeyValue
	for _, e := range s.history {
		if e.Type != storage.Deleted && e.Revision <= res.Revision && e.Key >= listOptions.StartKey {
			values = append(values, storage.KeyValue{Key: e.Key, Value: e.Value, ModRevision: e.Revision})
		}
	}
	sort.Slice(values, func(i, j int) bool { return values[i].Key < values[j].Key })
	res.Count = int64(len(values))
	if listOptions.Limit > 0 && res.Count > listOptions.Limit {
		values = values[:listOptions.Limit]
		res.HasMore = true
	}
	res.Items = values
	return res, nil
}

func (s *fakeStore) Watch(ctx context.Context, _ string, after int64) (storage.Watcher, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.watchLocked(ctx, after)
}

func (s *fakeStore) watchLocked(ctx context.Context, after int64) (storage.Watcher, error) {
	if s.down {
		return nil, storage.ErrUnavailable
	}
	ctx, cancel := context.WithCancel(ctx)
	w := &fakeWatcher{store: s, after: after, batches: make(chan storage.Batch, 4), cancel: cancel, broken: s.broken, restorations: s.restorations}
	s.watches++
	go w.run(ctx)
	return w, nil
}

// fakeWatcher is a watch of a fakeStore.
type fakeWatcher struct {
	store          *fakeStore
	batches        chan storage.Batch
	cancel         context.CancelFunc
	broken         chan struct{}
	restorations   int // history in which it started
	after          int64
	progressWanted bool  // guarded by s.mu
	err            error // guarded by s.mu
}

func (w *fakeWatcher) Batches() <-chan storage.Batch { return w.batches }
func (w *fakeWatcher) Stop()                         { w.cancel() }

func (w *fakeWatcher) Err() error {
	w.store.mu.Lock()
	defer w.store.mu.Unlock()
	return w.err
}

func (w *fakeWatcher) Progress(ctx context.Context) error {
	w.store.update(func() { w.progressWanted = true })
	return ctx.Err()
}

func (w *fakeWatcher) run(ctx context.Context) {
	defer w.cancel()
	defer close(w.batches)
	for {
		b, ok, changed, err := w.nextBatch()
		if err != nil {
			w.endWith(err)
			return
		}
		var out chan storage.Batch
		if ok {
			out = w.batches
			changed = nil
		}
		select {
		case out <- b:
		case <-changed:
		case <-w.broken:
			w.endWith(storage.ErrUnavailable)
			return
		case <-ctx.Done():
			w.endWith(nil)
			return
		}
	}
}

func (w *fakeWatcher) endWith(err error) {
	w.store.mu.Lock()
	defer w.store.mu.Unlock()
	w.err = err
	w.store.watches--
}

// nextBatch returns the batch to deliver, if there is one.
func (w *fakeWatcher) nextBatch() (batch storage.Batch, ok bool, changed chan struct{}, err error) {
	fakeStore := w.store
	fakeStore.mu.Lock()
	defer fakeStore.mu.Unlock()
	if fakeStore.restorations != w.restorations { // the store was restored since
		return batch, false, nil, storage.ErrUnavailable
	}
	if fakeStore.stalled {
		return batch, false, fakeStore.changed, nil
	}
	if w.after < fakeStore.compacted {
		return batch, false, nil, &storage.CompactedError{OldestRevision: fakeStore.compacted}
	}
	i := fakeStore.indexLocked(w.after)
	if i == len(fakeStore.history) {
		if !w.progressWanted {
			return batch, false, fakeStore.changed, nil
		}
		w.progressWanted = false
		w.after = max(w.after, fakeStore.revision)
		return storage.Batch{Revision: w.after}, true, nil, nil
	}
	n := i + 1
	for n < len(fakeStore.history) && (fakeStore.history[n].Revision == fakeStore.history[n-1].Revision || n-i < 3) {
		n++
	}
	w.after = fakeStore.history[n-1].Revision
	return storage.Batch{Events: fakeStore.history[i:n:n], Revision: w.after}, true, nil, nil
}

// fakeElector elects candidates in order of arrival.
type fakeElector struct {
	store *fakeStore
	seat  chan struct{} // holds a token while the seat is free

	mu        sync.Mutex
	leader    string        // of the elected candidate, or ""
	lost      chan struct{} // closed when its term ends; nil without a term
	suspended bool          // no candidate is elected
}

func newFakeElector(store *fakeStore) *fakeElector {
	elector := &fakeElector{store: store, seat: make(chan struct{}, 1)}
	elector.seat <- struct{}{}
	return elector
}

func (e *fakeElector) Campaign(ctx context.Context, _, id string) (<-chan struct{}, func(), error) {
	select {
	case <-e.seat:
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	lost := make(chan struct{})
	e.mu.Lock()
	defer e.mu.Unlock()
	e.leader = id
	e.lost = lost
	return lost, func() { e.endTerm(lost) }, nil
}

// endTerm ends the term of lost, once.
func (e *fakeElector) endTerm(lost chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.lost != lost || lost == nil {
		return
	}
	close(lost)
	e.leader = ""
	e.lost = nil
	e.store.writeOutsideRoot()
	if !e.suspended {
		e.seat <- struct{}{}
	}
}

// suspendElection prevents the election of a successor until resumeElection.
func (e *fakeElector) suspendElection() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.suspended = true
}

// resumeElection allows elections again.
func (e *fakeElector) resumeElection() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.suspended = false
	if e.lost == nil {
		e.seat <- struct{}{}
	}
}

// endCurrentTerm ends the current term.
func (e *fakeElector) endCurrentTerm() {
	e.mu.Lock()
	lost := e.lost
	e.mu.Unlock()
	e.endTerm(lost)
}

func (e *fakeElector) currentLeader() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.leader
}
