package harness

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
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
	path := natsBinary(t)
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

var natsBuild = sync.OnceValues(buildNATS)

func natsBinary(t testing.TB) string {
	t.Helper()
	path, err := natsBuild()
	if err != nil {
		t.Fatalf("build nats-server: %v", err)
	}
	return path
}

func buildNATS() (string, error) {
	const name = "nats-server"
	if dir := os.Getenv(BinDirEnv); dir != "" {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); err != nil {
			return "", fmt.Errorf("%s: %w", BinDirEnv, err)
		}
		return path, nil
	}
	module, err := moduleDir()
	if err != nil {
		return "", err
	}
	out := filepath.Join(filepath.Dir(module), "bin", "e2e")
	if err := os.MkdirAll(out, 0o755); err != nil {
		return "", err
	}
	unlock, err := lockFile(filepath.Join(out, "."+name+".lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	path := filepath.Join(out, name)
	cmd := exec.Command("go", "build", "-o", path, "./cmd/"+name)
	cmd.Dir = module
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, output)
	}
	return path, nil
}
