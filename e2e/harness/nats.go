package harness

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// NATS is a NATS server in a process of its own.
type NATS struct {
	*Process
	Addr    string // of clients, host:port
	monitor string
	args    []string
}

// StartNATS starts n NATS servers, a cluster when n is more than one, and waits
// until they are healthy. Clients are not told of the other servers of the
// cluster: they know those that they were given, which may be proxies.
func StartNATS(t testing.TB, n int) []*NATS {
	t.Helper()
	path := Binary(t, NATSServer)
	servers, routes := make([]*NATS, n), make([]string, n)
	for i := range n {
		routes[i] = fmt.Sprintf("nats://127.0.0.1:%d", FreePort(t))
	}
	for i := range n {
		client, monitor := FreePort(t), FreePort(t)
		s := &NATS{
			Process: NewProcess(t, fmt.Sprintf("nats-%d", i), path),
			Addr:    fmt.Sprintf("127.0.0.1:%d", client),
			monitor: fmt.Sprintf("http://127.0.0.1:%d/", monitor),
			args: []string{
				fmt.Sprintf("--name=nats-%d", i), "--addr=127.0.0.1",
				fmt.Sprintf("--port=%d", client), fmt.Sprintf("--http_port=%d", monitor),
			},
		}
		if n > 1 {
			s.args = append(s.args, "--cluster_name=e2e", "--no_advertise",
				"--cluster="+routes[i], "--routes="+strings.Join(routes, ","))
		}
		servers[i] = s
		s.Start()
	}
	return servers
}

// Start runs the server, again if it ran before.
func (s *NATS) Start() {
	s.t.Helper()
	s.Process.Start(s.args...)
	client := &http.Client{Timeout: 5 * time.Second}
	s.waitUntil("healthy", func() error { return expectOK(client, s.monitor+"healthz") })
}
