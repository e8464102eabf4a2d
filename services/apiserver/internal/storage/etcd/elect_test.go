package etcd_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"binnacle/services/apiserver/internal/storage/etcd"
	"binnacle/services/apiserver/internal/storage/etcd/etcdtest"
)

// patience bounds the wait for a result that a test expects.
const patience = 20 * time.Second

type elected struct {
	lost   <-chan struct{}
	resign func()
	err    error
}

func startCampaign(ctx context.Context, e *etcd.Elector, id string) <-chan elected {
	out := make(chan elected, 1)
	go func() {
		lost, resign, err := e.Campaign(ctx, "test", id)
		out <- elected{lost, resign, err}
	}()
	return out
}

func awaitValue[T any](t *testing.T, description string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatalf("timeout waiting for %s", description)
	}
	panic("unreachable")
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// TestElectionFollowsOrderOfCandidates checks that candidates are elected in the order in which
// they arrived, one at a time.
func TestElectionFollowsOrderOfCandidates(t *testing.T) {
	store := etcdtest.Embedded(t)
	elector := etcd.NewElector(store, 0)
	first := awaitValue(t, "the first", startCampaign(t.Context(), elector, "first"))
	if first.err != nil {
		t.Fatal(first.err)
	}
	w, err := store.Watch(t.Context(), etcd.ElectionPrefix, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	candidates := func(n int) {
		for n > 0 {
			n -= len(awaitValue(t, "candidates", w.Batches()).Events)
		}
	}
	candidates(1)
	second := startCampaign(t.Context(), elector, "second")
	candidates(1)
	third := startCampaign(t.Context(), elector, "third")
	candidates(1)
	if len(second)+len(third) > 0 || isClosed(first.lost) {
		t.Fatal("got two elected candidates, want one")
	}

	first.resign()
	if !isClosed(first.lost) {
		t.Fatal("after resigning: got an elected candidate, want its election lost")
	}
	two := awaitValue(t, "the second", second)
	if two.err != nil || len(third) > 0 {
		t.Fatalf("got second candidate: error %v, third elected: %t, want the second elected alone", two.err, len(third) > 0)
	}
	two.resign()
	two.resign()
	three := awaitValue(t, "the third", third)
	if three.err != nil {
		t.Fatal(three.err)
	}
	three.resign()
}

// TestElectionEndsWithItsLease checks that a leader learns that its lease was revoked.
func TestElectionEndsWithItsLease(t *testing.T) {
	server := etcdtest.PrivateServer(t)
	e := etcd.NewElector(etcdtest.NewStore(t, server.Config()), time.Second)
	first := awaitValue(t, "the first", startCampaign(t.Context(), e, "first"))
	if first.err != nil {
		t.Fatal(first.err)
	}
	defer first.resign()
	all, err := server.Client().Leases(t.Context())
	if err != nil || len(all.Leases) != 1 {
		t.Fatalf("got leases %v, %v, want one", all, err)
	}
	if _, err := server.Client().Revoke(t.Context(), all.Leases[0].ID); err != nil {
		t.Fatal(err)
	}
	awaitValue(t, "the loss", first.lost)
}

// TestElectionWaitEndsWithContext checks that a canceled candidate stops waiting and does not
// affect the leader.
func TestElectionWaitEndsWithContext(t *testing.T) {
	store := etcdtest.Embedded(t)
	e := etcd.NewElector(store, 0)
	first := awaitValue(t, "the first", startCampaign(t.Context(), e, "first"))
	defer first.resign()
	ctx, cancel := context.WithCancel(t.Context())
	second := startCampaign(ctx, e, "second")
	cancel()
	if got := awaitValue(t, "the second", second); !errors.Is(got.err, context.Canceled) {
		t.Fatalf("got %v, want context.Canceled", got.err)
	}
	if isClosed(first.lost) {
		t.Fatal("after another candidacy was cancelled: got the first term lost, want it kept")
	}
}

// TestElectionIsLostBeforeItIsWonAgain checks that a candidate that is cut off loses its term
// before another one is elected.
func TestElectionIsLostBeforeItIsWonAgain(t *testing.T) {
	t.Parallel()
	server := etcdtest.ListeningServer(t)
	proxy := etcdtest.NewProxy(t, server.Endpoint())
	client, err := etcd.Dial(etcd.DialOptions{Servers: []string{proxy.Endpoint()}})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	far := etcd.NewElector(etcdtest.NewStore(t, etcd.Config{Client: client}), time.Second)
	near := etcd.NewElector(etcdtest.NewStore(t, server.Config()), time.Second)

	first := awaitValue(t, "the first", startCampaign(t.Context(), far, "far"))
	if first.err != nil {
		t.Fatal(first.err)
	}
	defer first.resign()
	second := startCampaign(t.Context(), near, "near")
	proxy.Cut()
	two := awaitValue(t, "the second", second)
	if two.err != nil {
		t.Fatal(two.err)
	}
	defer two.resign()
	if !isClosed(first.lost) {
		t.Fatal("got two elected candidates, want one")
	}
}

// TestElectionSurvivesStalledMember checks that a stalled member of etcd, which gets every second
// attempt, does not end the term as long as other members respond.
func TestElectionSurvivesStalledMember(t *testing.T) {
	t.Parallel()
	const attempts = 8
	var calls atomic.Int64
	enough := make(chan struct{})
	stalled := func(
		ctx context.Context,
		streamDesc *grpc.StreamDesc,
		conn *grpc.ClientConn,
		method string,
		open grpc.Streamer,
		opts ...grpc.CallOption,
	) (grpc.ClientStream, error) {
		if strings.HasSuffix(method, "/LeaseKeepAlive") {
			n := calls.Add(1)
			if n == attempts {
				close(enough)
			}
			if n%2 == 1 {
				<-ctx.Done()
				return nil, ctx.Err()
			}
		}
		return open(ctx, streamDesc, conn, method, opts...)
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints:   []string{etcdtest.ListeningServer(t).Endpoint()},
		DialOptions: []grpc.DialOption{grpc.WithChainStreamInterceptor(stalled)},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	e := etcd.NewElector(etcdtest.NewStore(t, etcd.Config{Client: client}), 2*time.Second)
	first := awaitValue(t, "the first", startCampaign(t.Context(), e, "first"))
	if first.err != nil {
		t.Fatal(first.err)
	}
	defer first.resign()
	select {
	case <-enough:
	case <-first.lost:
		t.Fatalf("after %d attempts: got the term lost, want it kept", calls.Load())
	}
	if isClosed(first.lost) {
		t.Fatal("got the term lost, want it kept")
	}
}

// TestElectionKeysAreReadable checks that the key of a candidate names the election, and its value
// the candidate.
func TestElectionKeysAreReadable(t *testing.T) {
	server := etcdtest.PrivateServer(t)
	e := etcd.NewElector(etcdtest.NewStore(t, server.Config()), 0)
	first := awaitValue(t, "the first", startCampaign(t.Context(), e, "replica-a"))
	if first.err != nil {
		t.Fatal(first.err)
	}
	defer first.resign()
	resp, err := server.Client().Get(t.Context(), etcd.ElectionPrefix, clientv3.WithPrefix())
	if err != nil || len(resp.Kvs) != 1 {
		t.Fatalf("Get = %v, %v, want the key of one candidate", resp, err)
	}
	if k := string(resp.Kvs[0].Key); !strings.HasPrefix(k, "/binnacle/elections/test/") || string(resp.Kvs[0].Value) != "replica-a" {
		t.Fatalf("candidate is %s=%s, want replica-a below /binnacle/elections/test/", k, resp.Kvs[0].Value)
	}
}
