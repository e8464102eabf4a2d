package etcdtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// OldVersionProxy simulates an etcd of another version: a proxy that reports that version. While it
// holds events, it behaves like etcd before 3.5.13 and 3.4.31: it responds to requests for progress
// before it delivers the corresponding events.
type OldVersionProxy struct {
	version string
	conn    *grpc.ClientConn
	server  *grpc.Server
	addr    string
	newest  func() (int64, error)

	mu       sync.Mutex
	released chan struct{} // closed unless events are held
}

// NewOldVersionProxy listens in front of a server's endpoint until the test ends.
func NewOldVersionProxy(t testing.TB, endpoint, version string) *OldVersionProxy {
	t.Helper()
	conn, err := grpc.NewClient(strings.TrimPrefix(endpoint, "http://"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	proxy := &OldVersionProxy{version: version, conn: conn, addr: "http://" + listener.Addr().String(), released: make(chan struct{})}
	close(proxy.released)
	proxy.newest = func() (int64, error) {
		resp, err := pb.NewKVClient(conn).Range(context.Background(), &pb.RangeRequest{Key: []byte("k")})
		return resp.GetHeader().GetRevision(), err
	}
	proxy.server = grpc.NewServer(grpc.ForceServerCodec(rawCodec{}), grpc.UnknownServiceHandler(proxy.forwardCall))
	var serving sync.WaitGroup
	serving.Go(func() { _ = proxy.server.Serve(listener) }) // ends with Stop
	t.Cleanup(func() {
		proxy.ReleaseEvents()
		proxy.server.Stop()
		serving.Wait()
		conn.Close()
	})
	return proxy
}

// Endpoint returns the URL for clients.
func (o *OldVersionProxy) Endpoint() string { return o.addr }

// HoldEvents delays events, but not progress notifications.
func (o *OldVersionProxy) HoldEvents() {
	o.mu.Lock()
	defer o.mu.Unlock()
	select {
	case <-o.released:
		o.released = make(chan struct{})
	default:
	}
}

// ReleaseEvents delivers the held events.
func (o *OldVersionProxy) ReleaseEvents() {
	o.mu.Lock()
	defer o.mu.Unlock()
	select {
	case <-o.released:
	default:
		close(o.released)
	}
}

// heldUntil reports whether events are held, and returns the channel that Release closes.
func (o *OldVersionProxy) heldUntil() (until <-chan struct{}, held bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	select {
	case <-o.released:
		return o.released, false
	default:
		return o.released, true
	}
}

// rawCodec is a grpc codec that passes messages without decoding them.
type rawCodec struct{}

func (rawCodec) Name() string                  { return "frames" }
func (rawCodec) Marshal(v any) ([]byte, error) { return *v.(*[]byte), nil }
func (rawCodec) Unmarshal(data []byte, v any) error {
	*v.(*[]byte) = append([]byte(nil), data...)
	return nil
}

// proxiedCall is a call that the proxy forwards.
type proxiedCall struct {
	proxy  *OldVersionProxy
	method string
	client grpc.ServerStream

	mu sync.Mutex // guards sends to the client
}

// sendToClient sends a message to the client.
func (c *proxiedCall) sendToClient(data []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.client.SendMsg(&data)
}

// forwardCall forwards a call to etcd in both directions.
func (o *OldVersionProxy) forwardCall(_ any, down grpc.ServerStream) error {
	method, ok := grpc.MethodFromServerStream(down)
	if !ok {
		return status.Error(codes.Internal, "no method")
	}
	ctx, cancel := context.WithCancel(down.Context())
	defer cancel()
	if md, ok := metadata.FromIncomingContext(ctx); ok {
		ctx = metadata.NewOutgoingContext(ctx, md.Copy())
	}
	upstream, err := o.conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method, grpc.ForceCodec(rawCodec{}))
	if err != nil {
		return err
	}
	c := &proxiedCall{proxy: o, method: method, client: down}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return c.forwardRequests(upstream) })
	g.Go(func() error {
		defer cancel()
		return c.forwardResponses(ctx, upstream)
	})
	return g.Wait()
}

// forwardRequests forwards requests, except those that the proxy responds to itself.
func (c *proxiedCall) forwardRequests(clientStream grpc.ClientStream) error {
	for {
		var data []byte
		if err := c.client.RecvMsg(&data); err != nil {
			if errors.Is(err, io.EOF) {
				return clientStream.CloseSend()
			}
			return nil // the other direction reports the reason
		}
		answered, err := c.answerProgress(data)
		if err != nil {
			return err
		}
		if answered {
			continue
		}
		if err := clientStream.SendMsg(&data); err != nil {
			return nil
		}
	}
}

// answerProgress responds to a request for progress while events are held.
func (c *proxiedCall) answerProgress(data []byte) (answered bool, err error) {
	if c.method != "/etcdserverpb.Watch/Watch" {
		return false, nil
	}
	if _, held := c.proxy.heldUntil(); !held {
		return false, nil
	}
	var r pb.WatchRequest
	if err := r.Unmarshal(data); err != nil || r.GetProgressRequest() == nil {
		return false, err
	}
	newest, err := c.proxy.newest()
	if err != nil {
		return false, err
	}
	resp := pb.WatchResponse{Header: &pb.ResponseHeader{Revision: newest}, WatchId: clientv3.InvalidWatchID}
	out, err := resp.Marshal()
	if err != nil {
		return false, err
	}
	return true, c.sendToClient(out)
}

// forwardResponses forwards responses.
func (c *proxiedCall) forwardResponses(ctx context.Context, upstream grpc.ClientStream) error {
	for {
		var data []byte
		if err := upstream.RecvMsg(&data); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		var err error
		switch c.method {
		case "/etcdserverpb.Maintenance/Status":
			data, err = c.proxy.withVersion(data)
		case "/etcdserverpb.Watch/Watch":
			err = c.awaitRelease(ctx, data)
		}
		if err != nil {
			return err
		}
		if err := c.sendToClient(data); err != nil {
			return nil
		}
	}
}

// withVersion returns a status with the simulated version.
func (o *OldVersionProxy) withVersion(data []byte) ([]byte, error) {
	var s pb.StatusResponse
	if err := s.Unmarshal(data); err != nil {
		return nil, fmt.Errorf("status: %w", err)
	}
	s.Version = o.version
	return s.Marshal()
}

// awaitRelease blocks a response with events while events are held.
func (c *proxiedCall) awaitRelease(ctx context.Context, data []byte) error {
	var r pb.WatchResponse
	if err := r.Unmarshal(data); err != nil {
		return err
	}
	if len(r.Events) == 0 {
		return nil
	}
	until, _ := c.proxy.heldUntil()
	select {
	case <-until:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
