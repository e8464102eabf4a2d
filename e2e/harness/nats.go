package harness

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// NATS is a NATS server in its own process.
type NATS struct {
	*Process
	Addr       string // for clients, host:port
	monitorURL string
	args       []string
	routes     []*Proxy // links with the other servers of its cluster
}

// StartNATS starts n NATS servers with further flags, as a cluster if n is more than one, and waits
// until they are healthy. Servers do not advertise the cluster: clients know only the addresses
// that they were configured with, which may be proxies. Servers reach each other through proxies,
// so that a test can partition the cluster.
func StartNATS(t testing.TB, count int, flags ...string) []*NATS {
	t.Helper()
	path := Binary(t, NATSServer)
	servers, ports := make([]*NATS, count), make([]int, count)
	for i := range count {
		ports[i] = FreePort(t)
	}
	for i := range count {
		client, monitor := FreePort(t), FreePort(t)
		servers[i] = &NATS{
			Process:    NewProcess(t, fmt.Sprintf("nats-%d", i), path),
			Addr:       fmt.Sprintf("127.0.0.1:%d", client),
			monitorURL: fmt.Sprintf("http://127.0.0.1:%d/", monitor),
			args: []string{
				fmt.Sprintf("--name=nats-%d", i), "--addr=127.0.0.1",
				fmt.Sprintf("--port=%d", client), fmt.Sprintf("--http_port=%d", monitor),
			},
		}
	}
	for _, nats := range servers {
		nats.args = append(nats.args, flags...)
	}
	if count > 1 {
		for i, nats := range servers {
			var routes []string
			for j, other := range servers {
				if i == j {
					continue
				}
				p := StartProxy(t, fmt.Sprintf("127.0.0.1:%d", ports[j]))
				nats.routes, other.routes = append(nats.routes, p), append(other.routes, p)
				routes = append(routes, "nats://"+p.Addr)
			}
			nats.args = append(nats.args, "--cluster_name=e2e", "--no_advertise", "--cluster_advertise=127.0.0.1:1",
				fmt.Sprintf("--cluster=nats://127.0.0.1:%d", ports[i]), "--routes="+strings.Join(routes, ","))
		}
	}
	for _, nats := range servers {
		nats.Start()
	}
	return servers
}

// Routes returns the links between the server and the others of its cluster.
func (s *NATS) Routes() []*Proxy { return s.routes }

// Start starts or restarts the server.
func (s *NATS) Start() {
	s.t.Helper()
	s.Process.Start(s.args...)
	client := &http.Client{Timeout: 5 * time.Second}
	s.waitUntil("healthy", func() error { return expectOK(client, s.monitorURL+"healthz") })
}
