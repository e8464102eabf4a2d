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

// countedWatch records the sizes of watch responses with events.
type countedWatch struct {
	pb.WatchClient
	events chan int
}

// Watch implements pb.WatchClient.
func (a *countedWatch) Watch(ctx context.Context, opts ...grpc.CallOption) (pb.Watch_WatchClient, error) {
	stream, err := a.WatchClient.Watch(ctx, opts...)
	return &countedStream{Watch_WatchClient: stream, events: a.events}, err
}

// countedStream is a stream of countedWatch.
type countedStream struct {
	pb.Watch_WatchClient
	events chan int
}

// Recv implements pb.Watch_WatchClient.
func (a *countedStream) Recv() (*pb.WatchResponse, error) {
	r, err := a.Watch_WatchClient.Recv()
	if err == nil && len(r.Events) > 0 {
		a.events <- len(r.Events)
	}
	return r, err
}

// TestManyDeletionsInOneRevision checks that the watch does not let etcd fragment responses. etcd
// sends all events of a revision at once, and the time to fragment such a response is quadratic in
// the number of events.
func TestManyDeletionsInOneRevision(t *testing.T) {
	const txns = 32
	const keysPerTxn = 64
	server := etcdtest.Server(t)
	cfg := server.Config()
	watched := &countedWatch{WatchClient: cfg.Watch, events: make(chan int, txns+1)}
	cfg.Watch = watched
	store := etcdtest.Store(t, cfg)
	start, err := store.Revision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("k", 1<<10) // makes the response larger than the limit of etcd
	for i := range txns {
		var ops []clientv3.Op
		for j := range keysPerTxn {
			ops = append(ops, clientv3.OpPut(fmt.Sprintf("/registry/events/%s/%d-%d", long, i, j), ""))
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
		t.Errorf("got %d events up to %d, want %d at %d", len(b.Events), b.Revision, txns*keysPerTxn, deletion.Header.Revision)
	}
	if n := <-watched.events; n != txns*keysPerTxn {
		t.Errorf("got %d deletions in the first response, want all %d", n, txns*keysPerTxn)
	}
}
