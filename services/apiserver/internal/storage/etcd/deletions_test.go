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

// answered counts the responses with which a watch is told of changes.
type answered struct {
	pb.WatchClient
	events chan int
}

func (a *answered) Watch(ctx context.Context, opts ...grpc.CallOption) (pb.Watch_WatchClient, error) {
	stream, err := a.WatchClient.Watch(ctx, opts...)
	return &answers{stream, a.events}, err
}

type answers struct {
	pb.Watch_WatchClient
	events chan int
}

func (a *answers) Recv() (*pb.WatchResponse, error) {
	r, err := a.Watch_WatchClient.Recv()
	if err == nil && len(r.Events) > 0 {
		a.events <- len(r.Events)
	}
	return r, err
}

// TestMassesGoInOneRevision: etcd tells of all that goes in one revision at once. The time that it
// takes to cut such a response into fragments grows with the square of their events.
func TestMassesGoInOneRevision(t *testing.T) {
	const txns, each = 32, 64
	server := etcdtest.Server(t)
	cfg := server.Config()
	watched := &answered{cfg.Watch, make(chan int, txns+1)}
	cfg.Watch = watched
	store := etcdtest.Store(t, cfg)
	start, err := store.Revision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("k", 1<<10) // with which a response is larger than etcd sends at a time
	for i := range txns {
		var ops []clientv3.Op
		for j := range each {
			ops = append(ops, clientv3.OpPut(fmt.Sprintf("/registry/events/%s/%d-%d", long, i, j), ""))
		}
		if _, err := server.Client().Txn(t.Context()).Then(ops...).Commit(); err != nil {
			t.Fatal(err)
		}
	}
	gone, err := server.Client().Delete(t.Context(), "/registry/events/", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	w, err := store.Watch(t.Context(), "/registry/", start+txns)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	b := await(t, "the deletions", w.Batches())
	if len(b.Events) != txns*each || b.Revision != gone.Header.Revision || b.Events[0].Type != storage.Deleted {
		t.Errorf("%d events up to %d, want %d at %d", len(b.Events), b.Revision, txns*each, gone.Header.Revision)
	}
	if n := <-watched.events; n != txns*each {
		t.Errorf("etcd was asked to tell of %d deletions in pieces, the first with %d", txns*each, n)
	}
}
