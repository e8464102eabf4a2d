package etcdtest

import (
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"binnacle/services/apiserver/internal/storage/etcd/embedded"
)

// ReplayHistory copies the changes of an etcd up to a revision to another etcd, at the same
// revisions. changeLast maps each value that is put at the last revision, until. It is not called for
// deletions.
func ReplayHistory(t testing.TB, source, target *embedded.Server, until int64, changeLast func(value string) string) {
	t.Helper()
	revisions := map[int64][]clientv3.Op{}
	watch := source.Client().Watch(t.Context(), "\x00", clientv3.WithFromKey(), clientv3.WithRev(2))
	for last := int64(0); last < until; {
		r, ok := <-watch
		if !ok || r.Err() != nil {
			t.Fatalf("history ends at %d: %v", last, r.Err())
		}
		for _, e := range r.Events {
			last = e.Kv.ModRevision
			op := clientv3.OpDelete(string(e.Kv.Key))
			if e.Type == clientv3.EventTypePut {
				value := string(e.Kv.Value)
				if last == until {
					value = changeLast(value)
				}
				op = clientv3.OpPut(string(e.Kv.Key), value)
			}
			revisions[last] = append(revisions[last], op)
		}
	}
	for revision := int64(2); revision <= until; revision++ {
		r, err := target.Client().Txn(t.Context()).Then(revisions[revision]...).Commit()
		if err != nil || r.Header.Revision != revision {
			t.Fatalf("got revision %d for a change, want %d: %v", r.Header.Revision, revision, err)
		}
	}
}
