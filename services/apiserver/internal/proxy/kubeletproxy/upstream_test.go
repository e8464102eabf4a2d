package kubeletproxy_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	utilexec "k8s.io/client-go/util/exec"

	"binnacle/services/apiserver/internal/proxy/kubeletproxy"
)

// TestMain fails if a test leaves goroutines behind.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// Runs for a second after a connection broke.
		goleak.IgnoreTopFunction("github.com/moby/spdystream.(*Connection).shutdown"),
		// The client of the test, if it does not notice the end.
		goleak.IgnoreTopFunction("k8s.io/client-go/tools/remotecommand.(*heartbeat).start"),
	)
}

// front is a server that proxies requests to a kubelet.
type front struct {
	*httptest.Server
	upstream *kubeletproxy.Upstream
	registry *prometheus.Registry
	kubelet  *url.URL
	ctx      context.Context // of all requests
}

// noPanics is the log of a server whose handlers must not panic.
type noPanics struct{ t *testing.T }

func (l noPanics) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("panic")) {
		l.t.Errorf("got log line %s, want no panic", b)
	}
	return len(b), nil
}

// plainErrors responds with the text and the status code of an error.
type plainErrors struct{}

func (plainErrors) Error(w http.ResponseWriter, _ *http.Request, err error) {
	code := http.StatusInternalServerError
	var api apierrors.APIStatus
	if errors.As(err, &api) {
		code = int(api.Status().Code)
	}
	http.Error(w, err.Error(), code)
}

// optionsTrusting returns options that trust one server.
func optionsTrusting(t *testing.T, s *httptest.Server) kubeletproxy.Options {
	t.Helper()
	o := kubeletproxy.NewOptions()
	o.CAFile = filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(o.CAFile, pem.EncodeToMemory(&pem.Block{
		Type:  "CERTIFICATE",
		Bytes: s.Certificate().Raw,
	}), 0o600); err != nil {
		t.Fatal(err)
	}
	return o
}

// Arguments of newFront and newLimitedFront.
const (
	translate    = true  // translate WebSocket connections to SPDY for the kubelet
	untranslated = false // forward them unchanged
)

// newFront starts a front without a rate limit.
func newFront(t *testing.T, translated bool) *front { return newLimitedFront(t, translated, 0) }

// newLimitedFront starts a front whose upgraded connections are limited to rate bytes per second.
func newLimitedFront(t *testing.T, translated bool, rate int64) *front {
	t.Helper()
	kubelet := newKubelet(t)
	options := optionsTrusting(t, kubelet.Server)
	options.MaxBytesPerSecond = rate
	reg := prometheus.NewPedanticRegistry()
	upstream, err := kubeletproxy.New(options, reg, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(upstream.Close)
	kubeletURL, err := url.Parse(kubelet.URL)
	if err != nil {
		t.Fatal(err)
	}
	started := &front{upstream: upstream, registry: reg, kubelet: kubeletURL, ctx: t.Context()}
	started.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer context.AfterFunc(started.ctx, cancel)()
		r = r.WithContext(ctx)
		target := *kubeletURL
		target.Path = r.URL.Path
		query := r.URL.Query()
		values := url.Values{"command": query["command"]}
		for from, name := range map[string]string{"stdin": "input", "stdout": "output", "stderr": "error", "tty": "tty"} {
			if query.Get(from) == "true" {
				values.Set(name, "1")
			}
		}
		if strings.HasPrefix(r.URL.Path, "/portForward/") {
			upstream.PortForward(w, r, &target, translated, plainErrors{})
			return
		}
		target.RawQuery = values.Encode()
		streams := kubeletproxy.Streams{
			Stdin:  values.Get("input") == "1",
			Stdout: values.Get("output") == "1",
			Stderr: values.Get("error") == "1",
			TTY:    values.Get("tty") == "1",
		}
		upstream.Command(w, r, &target, streams, translated, plainErrors{})
	}))
	started.Config.ErrorLog = log.New(noPanics{t}, "", 0)
	started.Start()
	t.Cleanup(started.Close)
	return started
}

// executors returns an executor per protocol for one command.
func (f *front) executors(t *testing.T, query string) map[string]remotecommand.Executor {
	t.Helper()
	commandURL, err := url.Parse(f.URL + "/exec/ns/pod/c?" + query)
	if err != nil {
		t.Fatal(err)
	}
	config := &rest.Config{Host: f.URL}
	spdyExecutor, err := remotecommand.NewSPDYExecutor(config, http.MethodPost, commandURL)
	if err != nil {
		t.Fatal(err)
	}
	webSocketExecutor, err := remotecommand.NewWebSocketExecutor(config, http.MethodGet, commandURL.String())
	if err != nil {
		t.Fatal(err)
	}
	return map[string]remotecommand.Executor{"SPDY": spdyExecutor, "WebSocket": webSocketExecutor}
}

// TestRateLimitedConnectionDeliversAllData checks that all data arrives although it exceeds the burst of the rate
// limit.
func TestRateLimitedConnectionDeliversAllData(t *testing.T) {
	front := newLimitedFront(t, translate, 4<<20)
	data := strings.Repeat("0123456789abcdef", 20_000)
	for name, executor := range front.executors(t, "stdin=true&stdout=true&command=cat") {
		var out bytes.Buffer
		err := executor.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdin: strings.NewReader(data), Stdout: &out})
		if err != nil || out.String() != data {
			t.Errorf("%s: %v, got %d bytes, want %d", name, err, out.Len(), len(data))
		}
	}
}

// TestCommandStreamsExitCodesAndTerminalSizes checks input, output, error output, exit codes and terminal sizes of commands over
// SPDY and WebSocket.
func TestCommandStreamsExitCodesAndTerminalSizes(t *testing.T) {
	front := newFront(t, translate)
	data := strings.Repeat("0123456789abcdef", 20_000)
	for name, executor := range front.executors(t, "stdin=true&stdout=true&command=cat") {
		var out bytes.Buffer
		err := executor.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdin: strings.NewReader(data), Stdout: &out})
		if err != nil || out.String() != data {
			t.Errorf("%s: %v, got %d bytes, want %d", name, err, out.Len(), len(data))
		}
	}
	for name, executor := range front.executors(t, "stdout=true&stderr=true&command=warn&command=careful") {
		var out, warned bytes.Buffer
		err := executor.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: &out, Stderr: &warned})
		if err != nil || out.Len() > 0 || warned.String() != "careful" {
			t.Errorf("%s: got output %q, error output %q, %v, want only %q on the latter",
				name, out.String(), warned.String(), err, "careful")
		}
	}
	for name, executor := range front.executors(t, "stdout=true&command=exit&command=7") {
		err := executor.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: io.Discard})
		var exit utilexec.CodeExitError
		if !errors.As(err, &exit) || exit.Code != 7 {
			t.Errorf("%s: exit 7: got error %v, want exit code 7", name, err)
		}
	}
	for name, executor := range front.executors(t, "stdin=true&stdout=true&tty=true&command=size") {
		var out bytes.Buffer
		in, end := io.Pipe()
		err := executor.StreamWithContext(t.Context(), remotecommand.StreamOptions{
			Stdin:             in,
			Stdout:            &out,
			Tty:               true,
			TerminalSizeQueue: &fixedTerminal{size: remotecommand.TerminalSize{Width: 80, Height: 24}},
		})
		end.Close()
		if err != nil || out.String() != "80x24" {
			t.Errorf("%s: got %q, %v, want 80x24", name, out.String(), err)
		}
	}
}

// fixedTerminal is a terminal with a fixed size.
type fixedTerminal struct {
	size remotecommand.TerminalSize
	sent bool
}

func (o *fixedTerminal) Next() *remotecommand.TerminalSize {
	if o.sent {
		return nil
	}
	o.sent = true
	return &o.size
}

// TestCommandEndsWithContext checks that a command that would run forever ends when its client
// cancels it.
func TestCommandEndsWithContext(t *testing.T) {
	f := newFront(t, translate)
	for name, executor := range f.executors(t, "stdin=true&stdout=true&command=cat") {
		ctx, cancel := context.WithCancel(t.Context())
		in, input := io.Pipe()
		out, written := io.Pipe()
		done := make(chan error, 1)
		go func() {
			done <- executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: in, Stdout: written})
		}()
		go func() { _, _ = input.Write([]byte("x")) }()
		if _, err := io.ReadFull(out, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("%s: got error %v, want %v", name, err, context.Canceled)
		}
		input.Close()
		out.Close()
	}
}

// TestCommandWithoutKubeletFails checks that the client gets the error of the connection.
func TestCommandWithoutKubeletFails(t *testing.T) {
	f := newFront(t, translate)
	f.kubelet.Host = "127.0.0.1:1"
	executors := f.executors(t, "stdout=true&command=cat")
	err := executors["WebSocket"].StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: io.Discard})
	if err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("WebSocket: got error %v, want connection refused", err)
	}
	err = executors["SPDY"].StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: io.Discard})
	if err == nil || !strings.Contains(err.Error(), "error dialing backend") {
		t.Errorf("SPDY: got error %v, want error dialing backend", err)
	}
}

// TestPortForwardReachesBothPorts checks that data reaches two ports of a pod over SPDY and WebSocket.
func TestPortForwardReachesBothPorts(t *testing.T) {
	for _, translated := range []bool{true, false} {
		f := newFront(t, translated)
		at, err := url.Parse(f.URL + "/portForward/ns/pod")
		if err != nil {
			t.Fatal(err)
		}
		config := &rest.Config{Host: f.URL}
		rt, upgrader, err := spdy.RoundTripperFor(config)
		if err != nil {
			t.Fatal(err)
		}
		old := spdy.NewDialer(upgrader, &http.Client{Transport: rt}, http.MethodPost, at)
		checkForwardedPorts(t, "SPDY", old.Dial)
		if !translated {
			continue
		}
		web, err := portforward.NewSPDYOverWebsocketDialer(at, config)
		if err != nil {
			t.Fatal(err)
		}
		checkForwardedPorts(t, "WebSocket", web.Dial)
		at.Path += "/absent"
		web, err = portforward.NewSPDYOverWebsocketDialer(at, config)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := web.Dial("portforward.k8s.io"); err == nil {
			t.Error("port-forward to a missing pod: got no error, want one")
		}
	}
}

// dialFunc implements httpstream.Dialer with the type dialer.
type dialFunc func(protocols ...string) (httpstream.Connection, string, error)

type dialer struct{ dial dialFunc }

// Dial implements httpstream.Dialer.
func (d dialer) Dial(protocols ...string) (httpstream.Connection, string, error) {
	return d.dial(protocols...)
}

// checkForwardedPorts sends data through two forwarded ports.
func checkForwardedPorts(t *testing.T, name string, dial dialFunc) {
	t.Helper()
	stop, ready := make(chan struct{}), make(chan struct{})
	portForwarder, err := portforward.NewOnAddresses(dialer{dial},
		[]string{"127.0.0.1"}, []string{"0:80", "0:81"}, stop, ready, io.Discard, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- portForwarder.ForwardPorts() }()
	select {
	case <-ready:
	case err := <-done:
		t.Fatalf("%s: %v", name, err)
	}
	ports, err := portForwarder.GetPorts()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range ports {
		conn, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(p.Local))))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, "hello")
		_ = conn.(*net.TCPConn).CloseWrite()
		_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
		got, err := io.ReadAll(conn)
		if want := "port " + strconv.Itoa(int(p.Remote)) + ": hello"; err != nil || string(got) != want {
			t.Errorf("%s: %v %q, want %q", name, err, got, want)
		}
		conn.Close()
	}
	close(stop)
	<-done
}

// TestLogsVerifyKubeletUnlessSkipped reads logs, and verifies the kubelet's certificate unless the request skips that.
func TestLogsVerifyKubeletUnlessSkipped(t *testing.T) {
	kubelet := newKubelet(t)
	logURL, _ := url.Parse(kubelet.URL + "/containerLogs/ns/p/c?tailLines=1")
	upstream, err := kubeletproxy.New(optionsTrusting(t, kubelet.Server), prometheus.NewRegistry(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer upstream.Close()
	log, err := upstream.Log(t.Context(), kubeletproxy.Kubelet, logURL, "p")
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(log)
	log.Close()
	if err != nil || string(text) != "/containerLogs/ns/p/c?tailLines=1\n" {
		t.Errorf("got log %q, %v, want the requested path", text, err)
	}
	absent, _ := url.Parse(kubelet.URL + "/containerLogs/ns/p/absent")
	if _, err := upstream.Log(t.Context(), kubeletproxy.Kubelet, absent, "p"); !apierrors.IsNotFound(err) ||
		!strings.Contains(err.Error(), `the server could not find the requested resource ( pods/log p)`) {
		t.Errorf("log of a missing container: got %v, want NotFound for pods/log p", err)
	}
	follow, _ := url.Parse(kubelet.URL + "/containerLogs/ns/p/c?follow=true")
	ctx, cancel := context.WithCancel(t.Context())
	if log, err = upstream.Log(ctx, kubeletproxy.Kubelet, follow, "p"); err != nil {
		t.Fatal(err)
	}
	cancel()
	_, _ = io.Copy(io.Discard, log) // ends
	log.Close()

	options := kubeletproxy.NewOptions()
	options.CAFile = otherCA(t)
	otherCAUpstream, err := kubeletproxy.New(options, prometheus.NewRegistry(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer otherCAUpstream.Close()
	if _, err := otherCAUpstream.Log(t.Context(), kubeletproxy.Kubelet, logURL, "p"); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("kubelet certificate of another CA: got %v, want a certificate error", err)
	}
	if log, err = otherCAUpstream.Log(t.Context(), kubeletproxy.UnverifiedKubelet, logURL, "p"); err != nil {
		t.Errorf("without verification: got %v, want no error", err)
	} else {
		log.Close()
	}
}

// otherCA returns the file of an unrelated CA.
func otherCA(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ca := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		NotAfter:              time.Now().Add(time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, ca, ca, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
