package embedded

import (
	"context"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3rpc"
	"go.etcd.io/etcd/server/v3/proxy/grpcproxy/adapter"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// gate admits requests until it is closed, and then waits for the admitted ones: a request on a
// closed database crashes the process.
type gate struct {
	// mu orders entering and closing. It guards closed, and inside.Add.
	mu     sync.RWMutex
	closed bool
	inside sync.WaitGroup
}

// enter admits a request, which calls inside.Done when it ends. It returns an error after close.
func (g *gate) enter() error {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if g.closed {
		return status.Error(codes.Unavailable, "the embedded server is stopped")
	}
	g.inside.Add(1)
	return nil
}

// close rejects further requests and waits for the admitted ones.
func (g *gate) close() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.inside.Wait()
}

// newClient returns a client whose requests and watches pass the gate.
func newClient(server *etcdserver.EtcdServer, admission *gate) *clientv3.Client {
	client := v3client.New(server)
	direct := adapter.KvServerToKvClient(v3rpc.NewQuotaKVServer(server))
	client.KV = clientv3.NewKVFromKVClient(&kvClient{direct: direct, gate: admission}, client)
	return client
}

// kvClient is a pb.KVClient behind a gate.
type kvClient struct {
	direct pb.KVClient
	gate   *gate
}

// callThroughGate makes a call that passes the gate.
func callThroughGate[Req, Resp any](
	g *gate,
	call func(context.Context, Req, ...grpc.CallOption) (Resp, error),
	ctx context.Context,
	req Req,
) (resp Resp, err error) {
	if err := g.enter(); err != nil {
		return resp, err
	}
	defer g.inside.Done()
	return call(ctx, req)
}

func (c *kvClient) Range(ctx context.Context, r *pb.RangeRequest, _ ...grpc.CallOption) (*pb.RangeResponse, error) {
	return callThroughGate(c.gate, c.direct.Range, ctx, r)
}

func (c *kvClient) Put(ctx context.Context, r *pb.PutRequest, _ ...grpc.CallOption) (*pb.PutResponse, error) {
	return callThroughGate(c.gate, c.direct.Put, ctx, r)
}

func (c *kvClient) DeleteRange(
	ctx context.Context,
	r *pb.DeleteRangeRequest,
	_ ...grpc.CallOption,
) (*pb.DeleteRangeResponse, error) {
	return callThroughGate(c.gate, c.direct.DeleteRange, ctx, r)
}

func (c *kvClient) Txn(ctx context.Context, r *pb.TxnRequest, _ ...grpc.CallOption) (*pb.TxnResponse, error) {
	return callThroughGate(c.gate, c.direct.Txn, ctx, r)
}

func (c *kvClient) Compact(ctx context.Context, r *pb.CompactionRequest, _ ...grpc.CallOption) (*pb.CompactionResponse, error) {
	return callThroughGate(c.gate, c.direct.Compact, ctx, r)
}

// watchServer keeps the gate open while a stream is served.
type watchServer struct {
	pb.WatchServer
	gate *gate
}

// Watch implements pb.WatchServer.
func (s *watchServer) Watch(stream pb.Watch_WatchServer) error {
	if err := s.gate.enter(); err != nil {
		return err
	}
	defer s.gate.inside.Done()
	return s.WatchServer.Watch(stream)
}

// watchClient opens watch streams in process, and breaks them so that the server can stop.
type watchClient struct {
	direct pb.WatchClient
	ctx    context.Context
	stop   context.CancelFunc
}

// newWatchClient returns a client whose streams pass the gate.
func newWatchClient(server *etcdserver.EtcdServer, g *gate) *watchClient {
	ctx, cancel := context.WithCancel(context.Background())
	return &watchClient{
		direct: adapter.WatchServerToWatchClient(&watchServer{WatchServer: v3rpc.NewWatchServer(server), gate: g}),
		ctx:    ctx,
		stop:   cancel,
	}
}

// Watch implements pb.WatchClient.
func (w *watchClient) Watch(ctx context.Context, opts ...grpc.CallOption) (pb.Watch_WatchClient, error) {
	ctx, cancel := context.WithCancel(ctx)
	release := context.AfterFunc(w.ctx, cancel)
	context.AfterFunc(ctx, func() { release() })
	return w.direct.Watch(ctx, opts...)
}
