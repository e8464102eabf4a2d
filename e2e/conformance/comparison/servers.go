package comparison

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const (
	startTimeout = 3 * time.Minute
	stopTimeout  = 10 * time.Second
	pollInterval = 200 * time.Millisecond
	// AdminToken is the bearer token of a user in the group system:masters.
	AdminToken = "admin"
	// userAgent makes both servers record the same field manager.
	userAgent = "comparison/1"
)

// Server is a running API server.
type Server struct {
	name string
	// url is the base URL.
	url    string
	client *http.Client
}

func newServer(name, url string) *Server {
	return &Server{name: name, url: url, client: &http.Client{Timeout: time.Minute, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true, DisableCompression: true,
		MaxIdleConnsPerHost: 64,
	}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

// processes are the processes that the command started, in their order.
type processes struct {
	dir     string
	running []*exec.Cmd
}

// start runs a program in the background. Its output goes to a file in the folder.
func (p *processes) start(name, path string, args ...string) error {
	log, err := os.Create(filepath.Join(p.dir, name+".log"))
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(path, args...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	p.running = append(p.running, cmd)
	return nil
}

// stop ends the processes in reverse order.
func (p *processes) stop() {
	for i := len(p.running) - 1; i >= 0; i-- {
		cmd := p.running[i]
		_ = cmd.Process.Signal(syscall.SIGTERM)
		kill := time.AfterFunc(stopTimeout, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait()
		kill.Stop()
	}
}

// programs are the paths of the programs to run.
type programs struct {
	reference, product, etcd string
}

// startServers starts kube-apiserver and binnacle with equivalent flags, each with its own etcd, and
// waits until both are ready.
func (p *processes) startServers(ctx context.Context, programs programs) (reference, product *Server, err error) {
	key := filepath.Join(p.dir, "tokens.key")
	if err := writeKey(key); err != nil {
		return nil, nil, err
	}
	tokens := filepath.Join(p.dir, "tokens.csv")
	line := fmt.Sprintf("%s,admin,admin,%q\n", AdminToken, "system:masters")
	if err := os.WriteFile(tokens, []byte(line), 0o600); err != nil {
		return nil, nil, err
	}
	start := func(name, path string, extra ...string) (*Server, error) {
		ports, err := freePorts(3)
		if err != nil {
			return nil, err
		}
		etcd, peer := fmt.Sprintf("http://127.0.0.1:%d", ports[0]), fmt.Sprintf("http://127.0.0.1:%d", ports[1])
		if err := p.start(name+"-etcd", programs.etcd, "--data-dir="+filepath.Join(p.dir, name+"-etcd"), "--log-level=warn", "--unsafe-no-fsync",
			"--listen-client-urls="+etcd, "--advertise-client-urls="+etcd, "--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer,
			"--initial-cluster=default="+peer); err != nil {
			return nil, err
		}
		args := append([]string{
			"--etcd-servers=" + etcd, "--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", ports[2]), "--cert-dir=" + filepath.Join(p.dir, name),
			"--token-auth-file=" + tokens, "--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
			"--allow-privileged=true", "--enable-bootstrap-token-auth", "--service-cluster-ip-range=10.0.0.0/24",
			"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file=" + key, "--service-account-signing-key-file=" + key,
			"--max-requests-inflight=2000", "--max-mutating-requests-inflight=1000",
		}, extra...)
		if err := p.start(name, path, args...); err != nil {
			return nil, err
		}
		return newServer(name, fmt.Sprintf("https://127.0.0.1:%d", ports[2])), nil
	}
	if reference, err = start("kube-apiserver", programs.reference); err != nil {
		return nil, nil, err
	}
	// Only kube-controller-manager writes the results of type checks in a cluster of kube-apiserver.
	if product, err = start("binnacle", programs.product, "--check-admission-policy-types=false"); err != nil {
		return nil, nil, err
	}
	return reference, product, errors.Join(reference.waitReady(ctx), product.waitReady(ctx))
}

// waitReady waits until the server is ready and has its default roles.
func (s *Server) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		err := s.check(ctx, "/readyz")
		if err == nil {
			err = s.check(ctx, "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:node")
		}
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w", s.name, err)
		case <-tick.C:
		}
	}
}

func (s *Server) check(ctx context.Context, path string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+path, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+AdminToken)
	resp, err := s.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(resp.Body)
		return fmt.Errorf("%s: %s: %s", path, resp.Status, strings.TrimSpace(string(text)))
	}
	return nil
}

// writeKey writes a key that signs service account tokens.
func writeKey(path string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600)
}

// freePorts returns ports that no process listens on.
func freePorts(n int) ([]int, error) {
	var ports []int
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}
