package aggregation_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"binnacle/libs/pipetest"
	"binnacle/services/apiserver/internal/api/aggregation"
)

// network is a network in memory, over which an aggregator reaches extension servers.
type network struct {
	mu        sync.Mutex
	listeners map[string]*pipetest.Listener // by address
}

// inBubble runs a test in a synctest bubble.
func inBubble(t *testing.T, test func(t *testing.T, n *network)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { time.Sleep(10 * time.Minute) }) // idle connections are closed until then
		test(t, &network{listeners: map[string]*pipetest.Listener{}})
	})
}

// extend starts an extension server in the network. cert is its serving certificate.
func (n *network) extend(t *testing.T, cert tls.Certificate, serve http.HandlerFunc) *extension {
	n.mu.Lock()
	port := 10_000 + len(n.listeners)
	l := pipetest.Listen(port)
	n.listeners[fmt.Sprint("localhost:", port)] = l
	n.mu.Unlock()
	return extendOn(t, l, cert, serve)
}

// start starts an aggregator that dials into the network.
func (n *network) start(t *testing.T, change func(*fixture, *aggregation.Config)) *fixture {
	return start(t, func(agg *fixture, c *aggregation.Config) {
		c.Dial = n.dial
		if change != nil {
			change(agg, c)
		}
	})
}

func (n *network) dial(ctx context.Context, _, address string) (net.Conn, error) {
	n.mu.Lock()
	listener := n.listeners[address]
	n.mu.Unlock()
	if listener == nil {
		return nil, fmt.Errorf("dial %s: no such server", address)
	}
	return listener.Dial(ctx)
}
