package etcd_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"binnacle/services/apiserver/internal/storage"
	"binnacle/services/apiserver/internal/storage/etcd/etcdtest"
)

// eventCountingWatch records how many events each watch response of etcd has.
type eventCountingWatch struct {
	pb.WatchClient
	eventCounts chan int // receives the count of each response with events
}

// Watch implements pb.WatchClient.
func (w *eventCountingWatch) Watch(ctx context.Context, opts ...grpc.CallOption) (pb.Watch_WatchClient, error) {
	stream, err := w.WatchClient.Watch(ctx, opts...)
	return &eventCountingStream{Watch_WatchClient: stream, eventCounts: w.eventCounts}, err
}

// eventCountingStream is a stream of eventCountingWatch.
type eventCountingStream struct {
	pb.Watch_WatchClient
	eventCounts chan int
}

// Recv implements pb.Watch_WatchClient.
func (s *eventCountingStream) Recv() (*pb.WatchResponse, error) {
	r, err := s.Watch_WatchClient.Recv()
	if err == nil && len(r.Events) > 0 {
		s.eventCounts <- len(r.Events)
	}
	return r, err
}

// TestWatchResponsesAreNotFragmented deletes many keys in one revision and checks that etcd sends the
// events in one response. etcd fragments large responses on request, in a time that is quadratic in
// the number of events of a revision.
func TestWatchResponsesAreNotFragmented(t *testing.T) {
	const txns = 32
	const keysPerTxn = 64
	server := etcdtest.PrivateServer(t)
	cfg := server.Config()
	counted := &eventCountingWatch{WatchClient: cfg.Watch, eventCounts: make(chan int, txns+1)}
	cfg.Watch = counted
	store := etcdtest.NewStore(t, cfg)
	start, err := store.Revision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	longName := strings.Repeat("k", 1<<10) // makes the response larger than the limit of etcd
	for i := range txns {
		var ops []clientv3.Op
		for j := range keysPerTxn {
			ops = append(ops, clientv3.OpPut(fmt.Sprintf("/registry/events/%s/%d-%d", longName, i, j), ""))
		}
		if _, err := server.Client().Txn(t.Context()).Then(ops...).Commit(); err != nil {
			t.Fatal(err)
		}
	}
	deletion, err := server.Client().Delete(t.Context(), "/registry/events/", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	w, err := store.Watch(t.Context(), "/registry/", start+txns)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	b := awaitValue(t, "the deletions", w.Batches())
	if len(b.Events) != txns*keysPerTxn || b.Revision != deletion.Header.Revision || b.Events[0].Type != storage.Deleted {
		t.Errorf("got a batch of %d events at revision %d, the first of type %v; want %d events at revision %d of type %v",
			len(b.Events), b.Revision, b.Events[0].Type, txns*keysPerTxn, deletion.Header.Revision, storage.Deleted)
	}
	if n := <-counted.eventCounts; n != txns*keysPerTxn {
		t.Errorf("got %d events in the first watch response, want all %d", n, txns*keysPerTxn)
	}
}
