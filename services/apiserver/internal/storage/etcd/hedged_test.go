package etcd_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"binnacle/services/apiserver/internal/storage"
	"binnacle/services/apiserver/internal/storage/etcd"
	"binnacle/services/apiserver/internal/storage/etcd/etcdtest"
)

// TestStalledMemberDoesNotDelayNewestRevision checks that a stalled member, which gets every second
// read, does not delay reads of the newest revision.
func TestStalledMemberDoesNotDelayNewestRevision(t *testing.T) {
	t.Parallel()
	var attempts atomic.Int64
	stalled := func(
		ctx context.Context,
		method string,
		req, reply any,
		conn *grpc.ClientConn,
		call grpc.UnaryInvoker,
		opts ...grpc.CallOption,
	) error {
		if strings.HasSuffix(method, "/Range") && attempts.Add(1)%2 == 1 {
			<-ctx.Done()
			return ctx.Err()
		}
		return call(ctx, method, req, reply, conn, opts...)
	}
	member := etcdtest.ListeningServer(t).Endpoint()
	client, err := clientv3.New(clientv3.Config{
		Endpoints:   []string{member, member},
		DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(stalled)},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	store := etcdtest.NewStore(t, etcd.Config{Client: client})
	at, err := store.Create(t.Context(), "/registry/pods/a", []byte("a"), storage.WriteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for name, read := range map[string]func() (int64, error){
		"Revision":                    func() (int64, error) { return store.Revision(ctx) },
		"VerifyHistory of a revision": func() (int64, error) { return store.VerifyHistory(ctx, storage.Position{Revision: at}) },
		"VerifyHistory of a change": func() (int64, error) {
			return store.VerifyHistory(ctx, storage.Position{}.Advance(storage.Batch{
				Revision: at,
				Events: []storage.Event{
					{Type: storage.Created, Key: "/registry/pods/a", Value: []byte("a"), Revision: at, CreateRevision: at},
				},
			}))
		},
	} {
		if got, err := read(); got != at || err != nil {
			t.Errorf("%s: got %d, %v, want %d", name, got, err, at)
		}
	}
}
