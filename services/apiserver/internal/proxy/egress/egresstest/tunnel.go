package egresstest

import (
	"net"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"sigs.k8s.io/apiserver-network-proxy/konnectivity-client/proto/client"
)

// ServeGRPC serves konnectivity's gRPC until the test ends.
func (p *Proxy) ServeGRPC(t testing.TB, l net.Listener) {
	t.Helper()
	s := grpc.NewServer()
	client.RegisterProxyServiceServer(s, &tunnels{proxy: p})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.Serve(l)
	}()
	t.Cleanup(func() {
		s.Stop()
		<-ended
	})
}

// tunnels is the konnectivity service of a Proxy.
type tunnels struct {
	client.UnimplementedProxyServiceServer
	proxy *Proxy
}

// Proxy implements the service. Like the library's single-use tunnels, a stream has one connection.
func (s *tunnels) Proxy(stream client.ProxyService_ProxyServer) error {
	const id = 1
	var (
		mu     sync.Mutex // guards sending
		server net.Conn
	)
	send := func(packet *client.Packet) error {
		mu.Lock()
		defer mu.Unlock()
		return stream.Send(packet)
	}
	sendClosed := func() error {
		return send(&client.Packet{
			Type:    client.PacketType_CLOSE_RSP,
			Payload: &client.Packet_CloseResponse{CloseResponse: &client.CloseResponse{ConnectID: id}},
		})
	}
	var copying sync.WaitGroup
	defer copying.Wait()
	defer func() {
		if server != nil {
			_ = server.Close()
		}
	}()
	for {
		packet, err := stream.Recv()
		if err != nil {
			return nil
		}
		switch packet.Type {
		case client.PacketType_DIAL_REQ:
			requested := packet.GetDialRequest()
			response := &client.DialResponse{Random: requested.Random, ConnectID: id}
			// The test wants a connection that is open but from which the proxy reads nothing.
			if s.proxy.StopReading {
				if err := send(&client.Packet{
					Type:    client.PacketType_DIAL_RSP,
					Payload: &client.Packet_DialResponse{DialResponse: response},
				}); err != nil {
					return err
				}
				<-stream.Context().Done()
				return nil
			}
			if server, err = s.proxy.dial(requested.Address); err != nil {
				response.Error = err.Error()
			}
			if err := send(&client.Packet{
				Type:    client.PacketType_DIAL_RSP,
				Payload: &client.Packet_DialResponse{DialResponse: response},
			}); err != nil || server == nil {
				return err
			}
			from := server
			copying.Go(func() {
				for b := make([]byte, 4096); ; {
					n, err := from.Read(b)
					if n > 0 {
						_ = send(&client.Packet{
							Type:    client.PacketType_DATA,
							Payload: &client.Packet_Data{Data: &client.Data{ConnectID: id, Data: b[:n]}},
						})
					}
					if err != nil {
						_ = sendClosed()
						return
					}
				}
			})
		case client.PacketType_DATA:
			if _, err := server.Write(packet.GetData().Data); err != nil {
				return sendClosed()
			}
		case client.PacketType_CLOSE_REQ, client.PacketType_DIAL_CLS:
			return sendClosed()
		}
	}
}
