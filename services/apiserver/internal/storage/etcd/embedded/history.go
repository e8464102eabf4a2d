package embedded

import (
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/server/v3/storage/backend"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.etcd.io/etcd/server/v3/storage/schema"

	"binnacle/services/apiserver/internal/storage"
)

// windowRevisions is the number of revisions read at a time.
const windowRevisions = 512

// readChanges reads the changes of keys in a range (end "\x00": no end), after a revision and not
// after until. It ends with the revision at which the values reach maxBytes. It returns the last
// revision that it read, and the revision to which history was compacted at that time.
//
// It reads directly from the database, which stores each change under its revision. etcd itself
// reads all remaining changes for every 1,000 revisions that it sends to a watch.
func (s *Server) readChanges(
	from, end string,
	after, until int64,
	maxBytes int,
) (events []storage.Event, reached, compacted int64, err error) {
	if err := s.gate.enter(); err != nil {
		return nil, 0, 0, err
	}
	defer s.gate.inside.Done()
	reader := historyReader{from: from, before: end, reached: after}
	for reader.reached < until && reader.bytes < maxBytes {
		if err := reader.readUntil(s.member.server.Backend().ReadTx(), min(reader.reached+windowRevisions, until), maxBytes); err != nil {
			return nil, 0, 0, err
		}
	}
	// History is marked compacted before it is removed.
	return reader.events, reader.reached, s.member.server.KV().FirstRev(), nil
}

// historyReader reads the changes of a range of keys, revision by revision.
type historyReader struct {
	from, before string
	events       []storage.Event
	bytes        int
	reached      int64           // the last revision that was read
	reused       mvccpb.KeyValue // reused for each change
}

// readUntil continues to a revision, or to an earlier one if maxBytes is reached. No write
// completes meanwhile: a concurrent reader could see values twice while they are being stored.
func (h *historyReader) readUntil(tx backend.ReadTx, until int64, maxBytes int) error {
	tx.RLock()
	defer tx.RUnlock() // values are parts of the database until then
	revisions, values := tx.UnsafeRange(schema.Key, revisionKey(h.reached+1), revisionKey(until+1), 0)
	for i, value := range values {
		revision := mvcc.BytesToRev(revisions[i]).Main
		if revision > h.reached && h.bytes >= maxBytes { // whole revisions only
			h.reached = revision - 1
			return nil
		}
		h.reached = revision
		key := h.reused.Key
		h.reused.Reset()
		h.reused.Key = key[:0]
		if err := h.reused.Unmarshal(value); err != nil {
			return fmt.Errorf("change at %d: %w", revision, err)
		}
		h.bytes += len(value)
		event := eventOf(&h.reused, revision, mvcc.IsTombstone(revisions[i]))
		if h.from <= event.Key && (event.Key < h.before || h.before == "\x00") {
			h.events = append(h.events, event)
		}
	}
	h.reached = until
	return nil
}

// revisionKey returns the key under which the database stores the first change of a revision.
func revisionKey(revision int64) []byte {
	return mvcc.RevToBytes(mvcc.Revision{Main: revision}, mvcc.NewRevBytes())
}

// eventOf returns the event of a stored change.
func eventOf(keyValue *mvccpb.KeyValue, revision int64, deleted bool) storage.Event {
	event := storage.Event{Key: string(keyValue.Key), Revision: revision}
	switch {
	case deleted:
		event.Type = storage.Deleted
		return event
	case keyValue.CreateRevision == revision:
		event.Type = storage.Created
	default:
		event.Type = storage.Updated
	}
	event.Value = keyValue.Value
	event.CreateRevision = keyValue.CreateRevision
	return event
}
