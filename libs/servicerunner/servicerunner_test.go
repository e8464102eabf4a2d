package servicerunner_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gin-gonic/gin"
	"go.uber.org/goleak"
	"k8s.io/client-go/rest"

	"binnacle/libs/servicerunner"
	"binnacle/libs/task"
	"binnacle/libs/tracing/tracingtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newService(t *testing.T, master string) *servicerunner.Service {
	t.Helper()
	return newTracedService(t, master, "")
}

// newTracedService returns a service with an optional tracing configuration.
func newTracedService(t *testing.T, master, tracingFile string) *servicerunner.Service {
	t.Helper()
	options := servicerunner.NewOptions("testd", 0)
	options.Tracing.ConfigFile = tracingFile
	options.Serving.BindAddress = net.IPv4(127, 0, 0, 1)
	options.Serving.CertDir = t.TempDir()
	options.Client.Master = master
	if err := errors.Join(append(options.Validate(), options.Complete())...); err != nil {
		t.Fatal(err)
	}
	service, err := servicerunner.New("testd", options, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return service
}

func getPath(t *testing.T, service *servicerunner.Service, path string) (int, string) {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Get("https://" + service.Server.Addr().String() + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// TestReadinessFollowsAPIServer checks the health endpoints and the metrics of a running service
// before and after the API server responds.
func TestReadinessFollowsAPIServer(t *testing.T) {
	var ready atomic.Bool
	apiserver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !ready.Load() {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	defer apiserver.Close()
	service := newService(t, apiserver.URL)
	ctx, cancel := context.WithCancel(t.Context())
	taskEnded := make(chan struct{})
	done := make(chan error)
	go func() {
		done <- service.Run(ctx, task.Task{Name: "controller", Run: func(ctx context.Context) error {
			<-ctx.Done()
			close(taskEnded)
			return nil
		}})
	}()
	if code, _ := getPath(t, service, "/livez"); code != 200 {
		t.Errorf("livez: %d, want 200", code)
	}
	if code, body := getPath(t, service, "/readyz"); code != 500 || !strings.Contains(body, "[-]apiserver failed") {
		t.Errorf("readyz before: got status %d: %s, want 500 with a failed check apiserver", code, body)
	}
	if code, body := getPath(t, service, "/readyz/apiserver"); code != 500 || !strings.Contains(body, "waiting for the API server") {
		t.Errorf("readyz/apiserver: got status %d: %s, want 500 with %q", code, body, "waiting for the API server")
	}
	ready.Store(true)
	<-service.APIServer.Ready()
	if code, body := getPath(t, service, "/readyz?verbose"); code != 200 ||
		body != "[+]ping ok\n[+]apiserver ok\n[+]shutdown ok\nreadyz check passed\n" {
		t.Errorf("readyz after: got status %d: %s, want 200 with the checks ping, apiserver, shutdown", code, body)
	}
	if code, body := getPath(t, service, "/metrics"); code != 200 || !strings.Contains(body, "kubernetes_build_info{") {
		t.Errorf("metrics: got status %d: %.300s, want 200 with kubernetes_build_info", code, body)
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run() = %v", err)
	}
	<-taskEnded
}

// TestServiceContinuesTraces checks that a service continues the traces of trusted callers, starts new
// ones for others, and exports waiting spans at the end.
func TestServiceContinuesTraces(t *testing.T) {
	var seenMu sync.Mutex
	traceparent := ""
	apiserver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, request *http.Request) {
		if request.URL.Path == "/asked" {
			seenMu.Lock()
			defer seenMu.Unlock()
			traceparent = request.Header.Get("Traceparent")
		}
	}))
	defer apiserver.Close()
	collector := tracingtest.Start(t)
	// The sampling rate is zero, so the caller decides.
	file := tracingtest.File(t,
		"apiVersion: apiserver.config.k8s.io/v1beta1\nkind: TracingConfiguration\nendpoint: "+collector.Endpoint+"\n")
	service := newTracedService(t, apiserver.URL, file)
	service.Follow = func(request *http.Request) bool { return request.Header.Get("From") == "a friend" }
	client, err := rest.HTTPClientFor(service.Client)
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	service.Engine.GET("/ask", func(c *gin.Context) {
		request, err := http.NewRequestWithContext(c.Request.Context(), http.MethodGet, apiserver.URL+"/asked", nil)
		if err != nil {
			t.Error(err)
			return
		}
		response, err := client.Do(request)
		if err != nil {
			t.Error(err)
			return
		}
		response.Body.Close()
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- service.Run(ctx) }()
	const trace = "0af7651916cd43dd8448eb211c80319c"
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer transport.CloseIdleConnections()
	for _, flag := range []string{"-00", "-01"} {
		request, err := http.NewRequest(http.MethodGet, "https://"+service.Server.Addr().String()+"/ask", nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Traceparent", "00-"+trace+"-b7ad6b7169203331"+flag)
		request.Header.Set("From", "a friend")
		response, err := (&http.Client{Transport: transport}).Do(request)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		seenMu.Lock()
		if !strings.HasPrefix(traceparent, "00-"+trace) || !strings.HasSuffix(traceparent, flag) {
			t.Errorf("flag %s: API server received traceparent %s, want one that begins with %q and ends with the flag", flag, traceparent, "00-"+trace)
		}
		seenMu.Unlock()
	}
	untrusted, err := http.NewRequest(http.MethodGet, "https://"+service.Server.Addr().String()+"/ask", nil)
	if err != nil {
		t.Fatal(err)
	}
	untrusted.Header.Set("Traceparent", "00-"+trace+"-b7ad6b7169203331-01")
	response, err := (&http.Client{Transport: transport}).Do(untrusted)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	seenMu.Lock()
	if strings.HasPrefix(traceparent, "00-"+trace) || !strings.HasSuffix(traceparent, "-00") {
		t.Errorf("unauthenticated client: API server received traceparent %s, want a new trace that is not sampled", traceparent)
	}
	seenMu.Unlock()
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run() = %v", err)
	}
	names := map[string]string{}
	for _, span := range collector.Spans() {
		if span.Trace != trace || span.Service != "testd" {
			t.Errorf("got span %+v, want one of trace %s, service testd", span, trace)
		}
		names[span.Name] = span.Parent
	}
	if len(names) != 2 || names["GET /ask"] != "b7ad6b7169203331" || names["HTTP GET"] == "" {
		t.Errorf("got spans and parents %v, want GET /ask with b7ad6b7169203331, and HTTP GET", names)
	}
}

// TestFailedTaskEndsService checks that Run returns the error of a task with its name.
func TestFailedTaskEndsService(t *testing.T) {
	s := newService(t, "http://127.0.0.1:1")
	err := s.Run(t.Context(), task.Task{
		Name: "controller",
		Run:  func(context.Context) error { return errors.New("lost the lease") },
	})
	if err == nil || err.Error() != "controller: lost the lease" {
		t.Errorf("Run() = %v, want error \"controller: lost the lease\"", err)
	}
}

// TestNewNeedsAPIServer checks that New fails outside of a pod without flags for the API server.
func TestNewNeedsAPIServer(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	options := servicerunner.NewOptions("testd", 0)
	options.Serving.CertDir = t.TempDir()
	if err := options.Complete(); err != nil {
		t.Fatal(err)
	}
	if _, err := servicerunner.New("testd", options, slog.New(slog.DiscardHandler)); err == nil ||
		!strings.Contains(err.Error(), "--kubeconfig") {
		t.Errorf("New() = %v, want an error about --kubeconfig", err)
	}
}
