package serving_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	"go.uber.org/goleak"

	"binnacle/libs/options"
	"binnacle/libs/serving"
	"binnacle/libs/serving/health"
	"binnacle/libs/serving/tlsfiles"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func discardLogger() *slog.Logger { return slog.New(slog.DiscardHandler) }

// testOptions returns options of a server at the loopback interface, with a copy of selfSignedPair.
func testOptions(t testing.TB) *serving.Options {
	t.Helper()
	pair, err := selfSignedPair()
	if err != nil {
		t.Fatal(err)
	}
	o := loopbackOptions(t.TempDir())
	for name, content := range pair {
		if err := os.WriteFile(filepath.Join(o.CertDir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return o
}

// selfSignedPair returns the files of a self-signed pair, by name. Most of the processor time of the
// tests would go into the generation of RSA keys if each server had its own.
var selfSignedPair = sync.OnceValues(func() (map[string][]byte, error) {
	dir, err := os.MkdirTemp("", "pair")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	o := loopbackOptions(dir)
	if err := o.Complete(); err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	for _, path := range []string{o.CertFile, o.KeyFile} {
		if files[filepath.Base(path)], err = os.ReadFile(path); err != nil {
			return nil, err
		}
	}
	return files, nil
})

func loopbackOptions(certDir string) *serving.Options {
	o := serving.NewOptions("testd", 0)
	o.CertDir = certDir
	o.BindAddress = net.IPv4(127, 0, 0, 1)
	return o
}

// testServer is a server under test with a client that trusts it.
type testServer struct {
	*serving.Server
	url     string
	client  *http.Client
	stop    context.CancelFunc
	metrics *prometheus.Registry
	done    chan error
	// connect opens a connection without TLS.
	connect func(ctx context.Context, network, address string) (net.Conn, error)
}

// startServer starts a server with the handler that handler returns, beside the health endpoints.
// long selects long-running requests.
func startServer(t testing.TB, o *serving.Options, long func(*http.Request) bool,
	handler func(*serving.Server) http.Handler) *testServer {
	t.Helper()
	if err := errors.Join(append(o.Validate(), o.Complete())...); err != nil {
		t.Fatal(err)
	}
	registry := health.New(health.Config{Logger: discardLogger()})
	counts := prometheus.NewRegistry()
	server, err := serving.NewServer(serving.Config{Options: o, Logger: discardLogger(), Health: registry, Metrics: counts})
	if err != nil {
		t.Fatal(err)
	}
	engine, err := serving.NewEngine(discardLogger())
	if err != nil {
		t.Fatal(err)
	}
	registry.Mount(engine)
	remaining := handler(server)
	mux := http.NewServeMux()
	mux.Handle("/readyz", engine)
	mux.Handle("/livez", engine)
	mux.Handle("/", remaining)
	ctx, cancel := context.WithCancel(t.Context())
	started := &testServer{
		Server:  server,
		url:     "https://" + server.Addr().String(),
		stop:    cancel,
		metrics: counts,
		done:    make(chan error, 1),
		connect: (&net.Dialer{}).DialContext,
	}
	started.client = newClient(t, o.CertFile, nil)
	go func() { started.done <- server.Run(ctx, mux, long) }()
	t.Cleanup(func() {
		cancel()
		if err, ok := <-started.done; ok && err != nil {
			t.Errorf("Run() = %v", err)
		}
	})
	return started
}

func newClient(t testing.TB, trust string, cert *tls.Certificate) *http.Client {
	t.Helper()
	bundle, err := tlsfiles.LoadBundle(trust)
	if err != nil {
		t.Fatal(err)
	}
	config := &tls.Config{RootCAs: bundle.Pool()}
	if cert != nil {
		config.Certificates = []tls.Certificate{*cert}
	}
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func (r *testServer) get(t *testing.T, path string) (*http.Response, string) {
	t.Helper()
	resp, err := r.client.Get(r.url + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

func (r *testServer) waitForShutdown(t *testing.T) {
	t.Helper()
	err := <-r.done
	close(r.done)
	if err != nil {
		t.Errorf("Run() = %v", err)
	}
}

func helloHandler(*serving.Server) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello") })
}

// TestServesHTTP2WithASelfSignedCertificate checks a server with default options.
func TestServesHTTP2WithASelfSignedCertificate(t *testing.T) {
	r := startServer(t, testOptions(t), nil, helloHandler)
	resp, body := r.get(t, "/x")
	if resp.ProtoMajor != 2 || body != "hello" {
		t.Errorf("got %s, body %q, want HTTP/2, hello", resp.Proto, body)
	}
}

// TestRequestsHaveValuesOfTheirConnection checks that values of Config.Connection are in the
// context of each request.
func TestRequestsHaveValuesOfTheirConnection(t *testing.T) {
	type key struct{}
	for _, http1 := range []bool{false, true} {
		o := testOptions(t)
		o.DisableHTTP2 = http1
		if err := o.Complete(); err != nil {
			t.Fatal(err)
		}
		server, err := serving.NewServer(serving.Config{
			Options: o,
			Logger:  discardLogger(),
			Health:  health.New(health.Config{Logger: discardLogger()}),
			Connection: func(ctx context.Context, c net.Conn) context.Context {
				return context.WithValue(ctx, key{}, c.RemoteAddr().String())
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			done <- server.Run(ctx, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if got := r.Context().Value(key{}); got != r.RemoteAddr {
					t.Errorf("%s: context value for %s = %v, want %v", r.Proto, r.RemoteAddr, got, r.RemoteAddr)
				}
			}), nil)
		}()
		r := &testServer{url: "https://" + server.Addr().String(), client: newClient(t, o.CertFile, nil)}
		r.get(t, "/x")
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// TestHTTP2CanBeDisabled checks that clients get HTTP/1 if HTTP/2 is disabled.
func TestHTTP2CanBeDisabled(t *testing.T) {
	o := testOptions(t)
	o.DisableHTTP2 = true
	if resp, _ := startServer(t, o, nil, helloHandler).get(t, "/x"); resp.ProtoMajor != 1 {
		t.Errorf("HTTP/2 disabled: got %s, want HTTP/1", resp.Proto)
	}
}

// TestShutdownFollowsTheTimeline shuts down a server with a short request and a watch in flight.
func TestShutdownFollowsTheTimeline(t *testing.T) {
	for _, retryAfter := range []bool{false, true} {
		t.Run(map[bool]string{false: "plain", true: "retry-after"}[retryAfter], func(t *testing.T) {
			// 1. Start a server, a watch and a request that waits.
			o := testOptions(t)
			o.ShutdownRetryAfter = retryAfter
			o.ShutdownDelay = 200 * time.Millisecond
			release, inShort := make(chan struct{}), make(chan struct{})
			isLong := func(r *http.Request) bool { return r.URL.Path == "/watch" }
			testServer := startServer(t, o, isLong, func(server *serving.Server) http.Handler {
				mux := http.NewServeMux()
				mux.HandleFunc("/short", func(w http.ResponseWriter, _ *http.Request) {
					close(inShort)
					<-release
					io.WriteString(w, "complete")
				})
				mux.HandleFunc("/watch", func(w http.ResponseWriter, _ *http.Request) {
					io.WriteString(w, "begin\n")
					http.NewResponseController(w).Flush()
					<-server.LongRunningStop()
					io.WriteString(w, "end\n")
				})
				return mux
			})
			if resp, body := testServer.get(t, "/readyz?verbose"); resp.StatusCode != 200 || !strings.Contains(body, "[+]shutdown ok\n") {
				t.Fatalf("readyz before: got status %d: %s, want 200 with a passing check shutdown", resp.StatusCode, body)
			}
			watch, err := testServer.client.Get(testServer.url + "/watch")
			if err != nil {
				t.Fatal(err)
			}
			defer watch.Body.Close()
			lines := bufio.NewReader(watch.Body)
			if line, err := lines.ReadString('\n'); err != nil || line != "begin\n" {
				t.Fatalf("got %q, %v, want begin", line, err)
			}
			response := make(chan string, 1)
			go func() {
				_, body := testServer.get(t, "/short")
				response <- body
			}()
			<-inShort
			// 2. Shut down. During the delay the server is live but not ready.
			timeline, start := testServer.Timeline(), time.Now()
			testServer.stop()
			<-timeline.ShutdownInitiated.Signaled()
			if resp, body := testServer.get(t, "/readyz"); resp.StatusCode != 500 || !strings.Contains(body,
				"[-]shutdown failed: reason withheld\n") {
				t.Errorf("readyz during the delay: got status %d: %s, want 500 with a failed check shutdown",
					resp.StatusCode, body)
			}
			if resp, _ := testServer.get(t, "/livez"); resp.StatusCode != 200 {
				t.Errorf("livez during the delay: got status %d, want 200", resp.StatusCode)
			}
			// 3. After the delay watches end and new requests are rejected.
			<-timeline.NotAcceptingNewRequest.Signaled()
			if !timeline.AfterShutdownDelayDuration.IsSet() {
				t.Error("AfterShutdownDelayDuration did not happen, want it before the drain")
			}
			if timeline.InFlightRequestsDrained.IsSet() {
				t.Error("InFlightRequestsDrained happened, want it only after the last request")
			}
			if after := time.Since(start); after < o.ShutdownDelay {
				t.Errorf("got rejections after %v, want them after at least %v", after, o.ShutdownDelay)
			}
			if remaining, err := io.ReadAll(lines); err != nil || string(remaining) != "end\n" {
				t.Errorf("got %q, %v at the end of the watch, want end", remaining, err)
			}
			if retryAfter {
				newConnection := newClient(t, o.CertFile, nil)
				resp, err := newConnection.Get(testServer.url + "/new")
				if err != nil {
					t.Fatal(err)
				}
				body, _ := io.ReadAll(resp.Body)
				resp.Body.Close()
				if resp.StatusCode != 429 || resp.Header.Get("Retry-After") == "" || !strings.Contains(string(body),
					`"reason":"TooManyRequests"`) {
					t.Errorf("new request: got %d %v %s, want 429 TooManyRequests with Retry-After", resp.StatusCode, resp.Header, body)
				}
			} else if _, err := newClient(t, o.CertFile, nil).Get(testServer.url + "/new"); err == nil {
				t.Error("GET on a new connection during the drain: got no error, want one")
			}
			// 4. The shutdown ends after the request in flight.
			close(release)
			if body := <-response; body != "complete" {
				t.Errorf("request in flight: got %q, want complete", body)
			}
			testServer.waitForShutdown(t)
			if !timeline.InFlightRequestsDrained.IsSet() {
				t.Error("InFlightRequestsDrained did not happen, want it at the end")
			}
			if !timeline.HTTPServerStoppedListening.IsSet() {
				t.Error("HTTPServerStoppedListening did not happen, want it at the end")
			}
		})
	}
}

// TestShutdownAbortsSlowRequests checks that a shutdown aborts requests that take longer than the
// request timeout.
func TestShutdownAbortsSlowRequests(t *testing.T) {
	o := testOptions(t)
	o.RequestTimeout = 10 * time.Millisecond
	entered := make(chan struct{})
	testServer := startServer(t, o, nil, func(*serving.Server) http.Handler {
		return http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
			close(entered)
			<-req.Context().Done()
		})
	})
	failed := make(chan error, 1)
	go func() {
		resp, err := testServer.client.Get(testServer.url + "/hangs")
		if err == nil {
			_, err = io.ReadAll(resp.Body)
			resp.Body.Close()
		}
		failed <- err
	}()
	<-entered
	testServer.stop()
	testServer.waitForShutdown(t)
	if err := <-failed; err == nil {
		t.Error("reading the response of an aborted request = nil, want an error")
	}
}

// TestIdleConnectionsDoNotDelayShutdown checks that connections without requests, also ones without
// a handshake, do not delay a shutdown.
func TestIdleConnectionsDoNotDelayShutdown(t *testing.T) {
	t.Parallel()
	testServer := startServer(t, testOptions(t), nil, helloHandler)
	testServer.get(t, "/x")
	conn, err := net.Dial("tcp", testServer.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	testServer.stop()
	testServer.waitForShutdown(t)
}

// TestPortIsSharedOnlyIfBothServersPermitIt checks that a port is shared only if both servers
// permit it.
func TestPortIsSharedOnlyIfBothServersPermitIt(t *testing.T) {
	sharing := testOptions(t)
	sharing.PermitPortSharing = true
	first := startServer(t, sharing, nil, helloHandler)
	samePort := testOptions(t)
	samePort.SecurePort = first.Addr().(*net.TCPAddr).Port
	if err := samePort.Complete(); err != nil {
		t.Fatal(err)
	}
	config := serving.Config{Options: samePort, Logger: discardLogger(), Health: health.New(health.Config{Logger: discardLogger()})}
	if server, err := serving.NewServer(config); err == nil {
		server.Close()
		t.Errorf("NewServer() on port %d, which is in use, = nil, want an error", samePort.SecurePort)
	}
	samePort.PermitPortSharing = true
	server, err := serving.NewServer(config)
	if err != nil {
		t.Fatal(err)
	}
	server.Close()
}

// TestInvalidFlagsAreRejected checks the errors for invalid flags.
func TestInvalidFlagsAreRejected(t *testing.T) {
	tests := []struct {
		name string
		args []string
		want string // substring of an error of parsing, Complete or Validate
	}{
		{name: "defaults", args: nil, want: ""},
		{
			name: "everything",
			args: []string{"--bind-address=::1", "--secure-port=1", "--tls-min-version=VersionTLS13",
				"--tls-cipher-suites=TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
				"--http2-max-streams-per-connection=7", "--shutdown-delay-duration=1s", "--shutdown-send-retry-after",
				"--livez-grace-period=1s",
				"--tls-sni-cert-key=a.crt,a.key", "--tls-sni-cert-key=b.crt,b.key:b.example.com,*.c.example.com"}, want: "",
		},
		{name: "address", args: []string{"--bind-address=nowhere"}, want: "bind-address"},
		{name: "port", args: []string{"--secure-port=70000"}, want: "--secure-port 70000"},
		{name: "certificate without key", args: []string{"--tls-cert-file=a"}, want: "go together"},
		{name: "streams", args: []string{"--http2-max-streams-per-connection=0"}, want: "must be positive"},
		{name: "delay", args: []string{"--shutdown-delay-duration=-1s"}, want: "must not be negative"},
		{name: "grace", args: []string{"--livez-grace-period=-1s"}, want: "must not be negative"},
		{name: "version", args: []string{"--tls-min-version=TLS9"}, want: `unknown version "TLS9"`},
		{
			name: "former cipher suite names",
			args: []string{"--tls-cipher-suites=TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305,TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305,TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"},
			want: "",
		},
		{name: "suite", args: []string{"--tls-cipher-suites=NULL"}, want: `unknown cipher suite "NULL"`},
		{name: "named pair", args: []string{"--tls-sni-cert-key=a.crt"}, want: "CERT,KEY"},
		{name: "named pair, empty name", args: []string{"--tls-sni-cert-key=a.crt,a.key:"}, want: "a name is empty"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := testOptions(t)
			var sections options.Sections
			o.AddFlags(&sections)
			fs := pflag.NewFlagSet("", pflag.ContinueOnError)
			for _, name := range []string{"generic", "secure serving", "authentication"} {
				fs.AddFlagSet(sections.Set(name))
			}
			err := errors.Join(append([]error{fs.Parse(tt.args), o.Complete()}, o.Validate()...)...)
			if (err == nil) != (tt.want == "") || (err != nil && !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}
