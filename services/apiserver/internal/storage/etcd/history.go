package etcd

import (
	"context"
	"time"

	"binnacle/services/apiserver/internal/storage"
)

var _ storage.HistoryReader = (*Store)(nil)

// Changes implements storage.HistoryReader for an etcd in this process.
func (s *Store) Changes(ctx context.Context, prefix string, after, until int64, bytes int) (_ storage.Batch, ok bool, err error) {
	if s.changes == nil {
		return storage.Batch{}, false, nil
	}
	defer s.metrics.observe("history", prefix, time.Now(), &err)
	if err := ctx.Err(); err != nil {
		return storage.Batch{}, true, err
	}
	from, end := span(prefix)
	events, reached, compacted, err := s.changes(from, end, after, until, bytes)
	if err != nil {
		return storage.Batch{}, true, s.wrap(ctx, err)
	}
	if after+1 < compacted {
		s.noteCompacted(compacted)
		return storage.Batch{}, true, &storage.CompactedError{Oldest: compacted}
	}
	return storage.Batch{Events: events, Revision: reached}, true, nil
}
