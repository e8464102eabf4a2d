package watchcache_test

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"

	"binnacle/services/apiserver/internal/storage"
)

// memStore is an in-memory store that keeps its whole history, so that tests can compare. It
// implements the parts of storage.Interface that reads need.
type memStore struct {
	storage.Interface // nil: writes go through putKey, deleteKey and applyChanges

	mu        sync.Mutex
	revision  int64
	compacted int64
	history   []storage.Event
	current   map[string]storage.KeyValue  // state at revision
	changeIDs map[int64][]storage.ChangeID // of the history, by revision
	watchers  map[*memWatcher]struct{}
	progress  int // number of requests for progress
	reads     int // number of calls of VerifyHistory
	// seal is attached to all written values.
	seal *storage.Seal
	// watched is closed by the first watch.
	watched lazyChan
	// onRead, if set, is called inside every VerifyHistory.
	onRead func()
}

// newMemStore returns an empty store.
func newMemStore() *memStore {
	return &memStore{
		revision:  1,
		current:   map[string]storage.KeyValue{},
		changeIDs: map[int64][]storage.ChangeID{},
		watchers:  map[*memWatcher]struct{}{},
	}
}

// keyChange is one change in a transaction. A nil value deletes.
type keyChange struct {
	key   string
	value []byte
}

// putKey writes a key and returns the revision.
func (m *memStore) putKey(key, value string) int64 {
	return m.applyChanges(keyChange{key, []byte(value)})
}

// deleteKey deletes a key and returns the revision.
func (m *memStore) deleteKey(key string) int64 { return m.applyChanges(keyChange{key, nil}) }

// applyChanges applies changes of different keys at one revision.
func (m *memStore) applyChanges(ops ...keyChange) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	rev := m.revision + 1
	for _, o := range ops {
		old, exists := m.current[o.key]
		event := storage.Event{
			Type:           storage.Updated,
			Key:            o.key,
			Revision:       rev,
			CreateRevision: old.CreateRevision,
			Value:          o.value,
			Seal:           m.seal,
		}
		switch {
		case o.value == nil && !exists:
			continue
		case o.value == nil:
			event.Type = storage.Deleted
		case !exists:
			event.Type = storage.Created
			event.CreateRevision = rev
		}
		m.history = append(m.history, event)
		applyEvent(m.current, event)
		m.changeIDs[rev] = append(m.changeIDs[rev], storage.ChangeIDOf(&event))
		m.revision = rev
	}
	m.wakeWatchers()
	return m.revision
}

// advanceRevision advances the revision like a write outside the root.
func (m *memStore) advanceRevision() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.revision++
	return m.revision
}

// newestRevision returns the newest revision.
func (m *memStore) newestRevision() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.revision
}

// stateAt returns the state at a revision by replaying history. The caller holds mu.
func (m *memStore) stateAt(revision int64) map[string]storage.KeyValue {
	state := map[string]storage.KeyValue{}
	for _, ev := range m.history {
		if ev.Revision > revision {
			break
		}
		applyEvent(state, ev)
	}
	return state
}

// applyEvent applies an event to a state.
func applyEvent(state map[string]storage.KeyValue, ev storage.Event) {
	if ev.Type == storage.Deleted {
		delete(state, ev.Key)
		return
	}
	state[ev.Key] = storage.KeyValue{
		Key:            ev.Key,
		Value:          ev.Value,
		ModRevision:    ev.Revision,
		CreateRevision: ev.CreateRevision,
		Seal:           ev.Seal,
	}
}

// VerifyHistory implements watchcache.RevisionReader.
func (m *memStore) VerifyHistory(ctx context.Context, at storage.Position) (int64, error) {
	m.mu.Lock()
	m.reads++
	hook, rev := m.onRead, m.revision
	err := m.checkPosition(at)
	m.mu.Unlock()
	if hook != nil {
		hook()
	}
	if err == nil {
		err = ctx.Err()
	}
	return rev, err
}

// checkPosition returns an error if the history does not contain a position. It accepts positions
// whose last change was compacted. The caller holds mu.
func (m *memStore) checkPosition(at storage.Position) error {
	if at.Revision > m.revision {
		return at.HistoryReplaced(m.revision, "it is behind")
	}
	if at.Last.Revision <= m.compacted {
		return nil
	}
	if slices.ContainsFunc(m.changeIDs[at.Last.Revision], at.Last.Equal) {
		return nil
	}
	return at.HistoryReplaced(m.revision, "another change")
}

// rewind restores the store to a revision, as a backup does. The caller holds mu.
func (m *memStore) rewind(revision int64) {
	i, _ := slices.BinarySearchFunc(m.history, revision+1, func(ev storage.Event, rev int64) int {
		return cmp.Compare(ev.Revision, rev)
	})
	m.history = slices.Clone(m.history[:i])
	m.revision = revision
	m.current = m.stateAt(revision)
	maps.DeleteFunc(m.changeIDs, func(rev int64, _ []storage.ChangeID) bool { return rev > revision })
}

// applyWithoutEvents is like applyChanges, but watchers do not receive the change.
func (m *memStore) applyWithoutEvents(o keyChange) {
	m.mu.Lock()
	watchers := m.watchers
	m.watchers = nil
	m.mu.Unlock()
	m.applyChanges(o)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.watchers = watchers
}

// Resume is Watch with a check of the position.
func (m *memStore) Resume(ctx context.Context, prefix string, from storage.Position) (storage.Watcher, error) {
	m.mu.Lock()
	err := m.checkPosition(from)
	m.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return m.Watch(ctx, prefix, from.Revision)
}

func (m *memStore) List(_ context.Context, prefix string, opts storage.ListOptions) (storage.ListResult, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	rev := opts.Revision
	if rev == 0 {
		rev = m.revision
	}
	if rev < m.compacted {
		return storage.ListResult{}, &storage.CompactedError{OldestRevision: m.compacted}
	}
	res := storage.ListResult{Revision: rev}
	state := m.stateAt(rev)
	for _, key := range slices.Sorted(maps.Keys(state)) {
		if !strings.HasPrefix(key, prefix) || key < opts.StartKey {
			continue
		}
		res.Count++
		if opts.Limit > 0 && int64(len(res.Items)) == opts.Limit {
			res.HasMore = true
			continue
		}
		res.Items = append(res.Items, state[key])
	}
	return res, nil
}

func (m *memStore) Get(_ context.Context, key string, revision int64) (storage.KeyValue, int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if revision < m.compacted {
		return storage.KeyValue{}, 0, &storage.CompactedError{OldestRevision: m.compacted}
	}
	kv, ok := m.stateAt(revision)[key]
	if !ok {
		return storage.KeyValue{}, revision, storage.ErrNotFound
	}
	return kv, revision, nil
}

// compact forgets the history before a revision.
func (m *memStore) compact(revision int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.compacted = max(m.compacted, revision)
	m.wakeWatchers()
}

// breakWatches ends all watches as a lost connection does.
func (m *memStore) breakWatches() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for w := range m.watchers {
		w.broken = true
	}
	m.wakeWatchers()
}

// wakeWatchers wakes all watchers. The caller holds mu.
func (m *memStore) wakeWatchers() {
	for w := range m.watchers {
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
}

// memWatcher is a watcher of a memStore.
type memWatcher struct {
	store    *memStore
	prefix   string
	batches  chan storage.Batch
	wake     chan struct{}
	cancel   context.CancelFunc
	done     chan struct{}
	position int64 // revision of the last batch
	progress bool  // a request for progress is unanswered
	broken   bool
	err      error // set before done is closed
}

func (m *memStore) Watch(ctx context.Context, prefix string, after int64) (storage.Watcher, error) {
	ctx, cancel := context.WithCancel(ctx)
	watcher := &memWatcher{
		store:    m,
		prefix:   prefix,
		position: after,
		cancel:   cancel,
		batches:  make(chan storage.Batch),
		wake:     make(chan struct{}, 1),
		done:     make(chan struct{}),
	}
	m.mu.Lock()
	m.watchers[watcher] = struct{}{}
	m.mu.Unlock()
	m.watched.close()
	go watcher.deliver(ctx)
	return watcher, nil
}

// deliver delivers batches until the watcher ends.
func (w *memWatcher) deliver(ctx context.Context) {
	defer close(w.done)
	defer close(w.batches)
	defer func() {
		w.store.mu.Lock()
		delete(w.store.watchers, w)
		w.store.mu.Unlock()
	}()
	for {
		b, ok := w.nextBatch()
		if w.err != nil {
			return
		}
		if ok {
			select {
			case w.batches <- b:
				continue
			case <-ctx.Done():
				return
			}
		}
		select {
		case <-w.wake:
		case <-ctx.Done():
			return
		}
	}
}

// nextBatch returns the next batch, or false if there is none yet or the watch ends with w.err.
func (w *memWatcher) nextBatch() (storage.Batch, bool) {
	memStore := w.store
	memStore.mu.Lock()
	defer memStore.mu.Unlock()
	switch {
	case w.broken:
		w.err = storage.ErrUnavailable
		return storage.Batch{}, false
	case w.position < memStore.compacted:
		w.err = &storage.CompactedError{OldestRevision: memStore.compacted}
		return storage.Batch{}, false
	}
	i, _ := slices.BinarySearchFunc(memStore.history, w.position+1, func(ev storage.Event, rev int64) int {
		return cmp.Compare(ev.Revision, rev)
	})
	batch := storage.Batch{Revision: w.position}
	for _, ev := range memStore.history[i:] {
		batch.Revision = ev.Revision
		if strings.HasPrefix(ev.Key, w.prefix) {
			batch.Events = append(batch.Events, ev)
		}
	}
	if w.progress {
		w.progress = false
		batch.Revision = memStore.revision
		w.position = memStore.revision
		return batch, true
	}
	w.position = batch.Revision
	return batch, len(batch.Events) > 0
}

func (w *memWatcher) Batches() <-chan storage.Batch { return w.batches }

func (w *memWatcher) Err() error {
	<-w.done
	return w.err
}

func (w *memWatcher) Stop() {
	w.cancel()
	<-w.done
}

func (w *memWatcher) Progress(context.Context) error {
	w.store.mu.Lock()
	defer w.store.mu.Unlock()
	w.store.progress++
	w.progress = true
	w.store.wakeWatchers()
	return nil
}

// forgetValues drops values of history that are not current, so that they can be collected.
func (m *memStore) forgetValues() {
	m.mu.Lock()
	defer m.mu.Unlock()
	live := m.stateAt(m.revision)
	for i := range m.history {
		if ev := &m.history[i]; live[ev.Key].ModRevision != ev.Revision {
			ev.Value = nil
		}
	}
}
