package shim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/trace/noop"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/tracing"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
	"k8s.io/kubernetes/pkg/controlplane"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// binaryVariable names the environment variable with the path of the API server.
	binaryVariable = "BINNACLE_APISERVER"
	startTimeout   = 2 * time.Minute
	stopTimeout    = 20 * time.Second
	pollInterval   = 50 * time.Millisecond
	// loopbackName is the server name that selects the server's loopback certificate.
	loopbackName = "apiserver-loopback-client"
	// logTail is the number of bytes of the log in an error.
	logTail = 3000
)

// TB is the used part of testing.TB.
type TB interface {
	Logf(format string, args ...any)
}

// Config describes the server of a test.
type Config struct {
	// Options are the options of kube-apiserver. Their certificates and listener are not used.
	Options *options.ServerRunOptions
	// Flags follow the flags of Options.
	Flags []string
	// Modify is a hook of the test; may be nil.
	Modify func(*controlplane.Config)
	// Dir holds certificates, tokens and the log.
	Dir string
	// SkipHealth returns before the server is healthy.
	SkipHealth bool
}

// Server is a running API server.
type Server struct {
	// Client has the privileges of the API server itself, unless the authenticator of the test
	// knows it.
	Client *rest.Config
	Port   int

	own          *rest.Config
	stopWebhooks func() // may be nil
	log          string
	cmd          *exec.Cmd
	done         chan struct{}
	once         sync.Once
}

// Start starts a server and waits until it is healthy. The caller calls Stop.
func Start(ctx context.Context, t TB, c Config) (*Server, error) {
	binary := os.Getenv(binaryVariable)
	if binary == "" {
		return nil, fmt.Errorf("%s is not set: run the test by make integration", binaryVariable)
	}
	args, s, err := prepare(c)
	if err != nil {
		return nil, err
	}
	log, err := os.Create(s.log)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	t.Logf("%s %q", binary, args)
	s.cmd = exec.Command(binary, args...)
	s.cmd.Stdout, s.cmd.Stderr = log, log
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(s.done)
		_ = s.cmd.Wait()
	}()
	if err := s.wait(ctx, c.SkipHealth); err != nil {
		s.Stop()
		return nil, fmt.Errorf("%w; last lines of the log:\n%s", err, s.tail())
	}
	return s, nil
}

// prepare writes the files of a server and returns its arguments.
func prepare(c Config) ([]string, *Server, error) {
	port, err := freePort()
	if err != nil {
		return nil, nil, err
	}
	s := &Server{Port: port, log: filepath.Join(c.Dir, "apiserver.log"), done: make(chan struct{})}
	certPEM, err := writeLoopbackPair(c.Dir)
	if err != nil {
		return nil, nil, err
	}
	token := uuid.NewString()
	tokens, err := writeTokens(c, token)
	if err != nil {
		return nil, nil, err
	}
	s.Client = &rest.Config{
		Host: "https://127.0.0.1:" + strconv.Itoa(port), BearerToken: token, QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{ServerName: loopbackName, CAData: certPEM},
	}
	if c.Options.Traces != nil && c.Options.Traces.ConfigFile != "" {
		s.Client.Wrap(tracing.WrapperFor(noop.NewTracerProvider())) // sends the trace of a call's context
	}
	h, err := runHook(c)
	if err != nil {
		return nil, nil, err
	}
	s.own, s.stopWebhooks = s.Client, h.stop
	if h.tokenless {
		s.Client = rest.CopyConfig(s.own)
		s.Client.BearerToken = uuid.NewString()
	}
	args := append(without(slices.Concat(c.Flags, h.flags), flagsOf(c.Options), gateFlags()), h.flags...)
	args = append(args, c.Flags...)
	return append(args, "--secure-port="+strconv.Itoa(port), "--token-auth-file="+tokens,
		fmt.Sprintf("--tls-sni-cert-key=%s,%s:%s", filepath.Join(c.Dir, loopbackCert),
			filepath.Join(c.Dir, loopbackKey), loopbackName)), s, nil
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// writeTokens writes the token file of the test with the token of the server itself.
func writeTokens(c Config, token string) (string, error) {
	var all []byte
	if file := c.Options.Authentication.TokenFile; file != nil && file.TokenFile != "" {
		var err error
		if all, err = os.ReadFile(file.TokenFile); err != nil {
			return "", err
		}
		all = append(bytes.TrimRight(all, "\n"), '\n')
	}
	all = fmt.Appendf(all, "%s,system:apiserver,%s,system:masters\n", token, uuid.NewString())
	path := filepath.Join(c.Dir, "tokens.csv")
	return path, os.WriteFile(path, all, 0o600)
}

// wait blocks until the server is healthy and has its first namespace.
func (s *Server) wait(ctx context.Context, skipHealth bool) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	client, err := kubernetes.NewForConfig(s.own)
	if err != nil {
		return err
	}
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return fmt.Errorf("the server is not healthy: %w", ctx.Err())
		case <-s.done:
			return errors.New("the server exited: " + s.cmd.ProcessState.String())
		case <-tick.C:
		}
		status := 0
		client.CoreV1().RESTClient().Get().AbsPath("/healthz").Do(ctx).StatusCode(&status)
		if status != http.StatusOK && !skipHealth {
			continue
		}
		if _, err := client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceDefault, metav1.GetOptions{}); err == nil {
			return nil
		}
	}
}

// Stop stops the server and waits for its end.
func (s *Server) Stop() {
	s.once.Do(func() {
		_ = s.cmd.Process.Signal(syscall.SIGTERM)
		late := time.AfterFunc(stopTimeout, func() { _ = s.cmd.Process.Kill() })
		defer late.Stop()
		<-s.done
		if s.stopWebhooks != nil {
			s.stopWebhooks()
		}
	})
}

// tail returns the end of the log.
func (s *Server) tail() []byte {
	text, err := os.ReadFile(s.log)
	if err != nil {
		return []byte(err.Error())
	}
	return text[max(0, len(text)-logTail):]
}
