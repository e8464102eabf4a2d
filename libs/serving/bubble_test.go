package serving_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"binnacle/libs/serving"
	"binnacle/libs/serving/health"
)

// pipes is a listener of connections in memory, as nothing else can be waited for in a
// synctest bubble.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (*pipes) Addr() net.Addr { return &net.TCPAddr{} }

func (p *pipes) dial(context.Context, string, string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case p.conns <- server:
		return client, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// inBubble runs a test with a server whose time passes at once when all wait.
func inBubble(t *testing.T, handler http.HandlerFunc, test func(t *testing.T, r *running)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { time.Sleep(time.Minute) }) // for connections that are delayed when they are closed
		o, counts := testOptions(t), prometheus.NewRegistry()
		if err := errors.Join(append(o.Validate(), o.Complete())...); err != nil {
			t.Fatal(err)
		}
		s, err := serving.NewServer(serving.Config{Options: o, Logger: silent(), Health: health.New(health.Config{Logger: silent()}), Metrics: counts})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		l := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
		stop, err := s.ServeOn(l, handler)
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := stop(); err != nil {
				t.Error(err)
			}
		}()
		transport := &http.Transport{DialContext: l.dial, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}
		defer transport.CloseIdleConnections()
		test(t, &running{Server: s, url: "https://server", client: &http.Client{Transport: transport}, counts: counts, connect: l.dial})
	})
}
