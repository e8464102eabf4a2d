package memstore

import (
	"context"
	"strings"
	"sync"
	"time"

	"binnacle/libs/sorted"
	"binnacle/services/apiserver/internal/storage"
)

// maxRequestBytes bounds a key and its value in bytes. It is etcd's default.
const maxRequestBytes = 3 << 19

// version is the state of a key after one change.
type version struct {
	storage.Event
	// expires is when the value is deleted; zero is never.
	expires time.Time
	// previous is the version of the key before this one; nil if there is none or it
	// is compacted. The store's mutex guards it.
	previous *version
}

// isLive reports whether the key has a value at this version. v may be nil.
func (v *version) isLive() bool { return v != nil && v.Type != storage.Deleted }

func (v *version) keyValue() storage.KeyValue {
	return storage.KeyValue{Key: v.Key, Value: v.Value, ModRevision: v.Revision, CreateRevision: v.CreateRevision}
}

// historyEntry is one revision of the history: the change that it made.
type historyEntry struct {
	revision int64
	// version is nil for the revision of an empty store.
	version *version
	// followed is closed once next is set.
	followed chan struct{}
	next     *historyEntry
}

// Store implements storage.Interface and storage.HistoryReader. Values that it returns
// are shared and must not be changed.
type Store struct {
	// mu guards all fields.
	mu sync.RWMutex
	// keys holds the newest version of each key. Deletions stay until they are compacted.
	keys sorted.Map[string, *version]
	// history has one change per revision without gaps. The first is the revision to
	// which the store was compacted, the last is the newest.
	history []*historyEntry
	expiry  expiryQueue
}

var (
	_ storage.Interface     = (*Store)(nil)
	_ storage.HistoryReader = (*Store)(nil)
)

// New returns an empty Store at revision 1, as an empty etcd is.
func New() *Store {
	return &Store{keys: sorted.NewMap[string, *version](), history: []*historyEntry{{revision: 1, followed: make(chan struct{})}}}
}

// Close stops the expiry of values. The Store stays readable.
func (s *Store) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expiry.close()
}

func (s *Store) oldestRevision() int64       { return s.history[0].revision }
func (s *Store) newestChange() *historyEntry { return s.history[len(s.history)-1] }

// changeAt returns the change at a revision that is kept.
func (s *Store) changeAt(revision int64) *historyEntry { return s.history[revision-s.oldestRevision()] }

// readRevision returns the revision that a read at revision uses; 0 means the newest. It returns an
// error for a compacted or future revision.
func (s *Store) readRevision(revision int64) (int64, error) {
	newest := s.newestChange().revision
	switch {
	case revision == 0:
		return newest, nil
	case revision > newest:
		return 0, &storage.FutureError{Current: newest}
	case revision < s.oldestRevision():
		return 0, &storage.CompactedError{OldestRevision: s.oldestRevision()}
	}
	return revision, nil
}

// versionAt returns the version of a key at a revision, starting from the newer version v. It
// returns nil if there is no value.
func versionAt(v *version, revision int64) *version {
	for v != nil && v.Revision > revision {
		v = v.previous
	}
	if !v.isLive() {
		return nil
	}
	return v
}

// Get implements storage.Interface.
func (s *Store) Get(ctx context.Context, key string, revision int64) (storage.KeyValue, int64, error) {
	if err := ctx.Err(); err != nil {
		return storage.KeyValue{}, 0, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	revision, err := s.readRevision(revision)
	if err != nil {
		return storage.KeyValue{}, 0, err
	}
	newest, _ := s.keys.Get(key)
	v := versionAt(newest, revision)
	if v == nil {
		return storage.KeyValue{}, revision, storage.ErrNotFound
	}
	return v.keyValue(), revision, nil
}

// List implements storage.Interface.
func (s *Store) List(ctx context.Context, prefix string, opts storage.ListOptions) (storage.ListResult, error) {
	if err := ctx.Err(); err != nil {
		return storage.ListResult{}, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	revision, err := s.readRevision(opts.Revision)
	if err != nil {
		return storage.ListResult{}, err
	}
	res := storage.ListResult{Revision: revision, Items: []storage.KeyValue{}}
	s.keys.Ascend(max(prefix, opts.StartKey), func(key string, newest *version) bool {
		if !strings.HasPrefix(key, prefix) {
			return false
		}
		if v := versionAt(newest, revision); v != nil {
			res.Count++
			if opts.Limit <= 0 || int64(len(res.Items)) < opts.Limit {
				res.Items = append(res.Items, v.keyValue())
			}
		}
		return true
	})
	res.HasMore = res.Count > int64(len(res.Items))
	return res, nil
}

// Revision implements storage.Interface.
func (s *Store) Revision(ctx context.Context) (int64, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.newestChange().revision, ctx.Err()
}

// VerifyHistory implements storage.Interface. Nothing replaces the store below its users, so
// only the revision is compared.
func (s *Store) VerifyHistory(ctx context.Context, at storage.Position) (int64, error) {
	newest, err := s.Revision(ctx)
	if err == nil && newest < at.Revision {
		return 0, replacedError(at, newest)
	}
	return newest, err
}

// Ping returns the error of the context: the store always responds.
func (s *Store) Ping(ctx context.Context) error { return ctx.Err() }
