package memstore

import (
	"context"
	"slices"
	"strings"
	"time"

	"binnacle/services/apiserver/internal/storage"
)

// Compact implements storage.Interface.
func (s *Store) Compact(ctx context.Context, revision int64) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if newest := s.newestChange().revision; revision > newest {
		return &storage.FutureError{Current: newest}
	}
	if revision <= s.oldestRevision() {
		return &storage.CompactedError{OldestRevision: s.oldestRevision()}
	}
	dropped := int(revision - s.oldestRevision())
	// The history has one change for each revision, and the first one is of the oldest revision. The
	// slice has the changes after it, up to the new oldest revision.
	for _, entry := range s.history[1 : dropped+1] {
		// Reads of the new oldest revision and later ones do not need earlier versions.
		entry.version.previous = nil
		if newest, _ := s.keys.Get(entry.version.Key); newest == entry.version && !newest.isLive() {
			s.keys.Delete(newest.Key)
		}
	}
	s.history = slices.Clone(s.history[dropped:]) // releases the memory of the earlier changes
	return nil
}

// CompactEvery compacts at each interval to the revision that was the newest one an
// interval before, until the context ends or an error occurs. An interval of 0 disables it.
func (s *Store) CompactEvery(ctx context.Context, interval time.Duration) error {
	if interval <= 0 {
		<-ctx.Done()
		return nil
	}
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	var seen int64
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		oldest, newest, err := s.History(ctx)
		if err == nil && seen > oldest {
			err = s.Compact(ctx, seen)
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
		seen = newest
	}
}

// History returns the revision to which the store was compacted and the newest one.
func (s *Store) History(ctx context.Context) (oldest, newest int64, err error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.oldestRevision(), s.newestChange().revision, ctx.Err()
}

// Changes implements storage.HistoryReader.
func (s *Store) Changes(ctx context.Context, prefix string, after, until int64, bytes int) (storage.Batch, bool, error) {
	if err := ctx.Err(); err != nil {
		return storage.Batch{}, true, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if after+1 < s.oldestRevision() {
		return storage.Batch{}, true, &storage.CompactedError{OldestRevision: s.oldestRevision()}
	}
	until = min(until, s.newestChange().revision)
	b := storage.Batch{Revision: after}
	for size := 0; b.Revision < until && size < bytes; b.Revision++ {
		if v := s.changeAt(b.Revision + 1).version; v != nil && strings.HasPrefix(v.Key, prefix) {
			b.Events = append(b.Events, v.Event)
			size += len(v.Key) + len(v.Value)
		}
	}
	return b, true, nil
}
