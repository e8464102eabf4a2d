package chassis_test

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
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"binnacle/libs/chassis"
	"binnacle/libs/task"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func service(t *testing.T, master string) *chassis.Service {
	t.Helper()
	o := chassis.NewOptions("testd", 0)
	o.Serving.BindAddress = net.IPv4(127, 0, 0, 1)
	o.Serving.CertDir = t.TempDir()
	o.Client.Master = master
	if err := errors.Join(append(o.Validate(), o.Complete())...); err != nil {
		t.Fatal(err)
	}
	s, err := chassis.New("testd", o, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func get(t *testing.T, s *chassis.Service, path string) (int, string) {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Get("https://" + s.Server.Addr().String() + path)
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

// TestServiceIsReadyWhenItsAPIServerIs runs a whole service.
func TestServiceIsReadyWhenItsAPIServerIs(t *testing.T) {
	var ready atomic.Bool
	apiserver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !ready.Load() {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	defer apiserver.Close()
	s := service(t, apiserver.URL)
	ctx, cancel := context.WithCancel(t.Context())
	taskEnded := make(chan struct{})
	done := make(chan error)
	go func() {
		done <- s.Run(ctx, task.Task{Name: "controller", Run: func(ctx context.Context) error {
			<-ctx.Done()
			close(taskEnded)
			return nil
		}})
	}()
	if code, _ := get(t, s, "/livez"); code != 200 {
		t.Errorf("livez: %d", code)
	}
	if code, body := get(t, s, "/readyz"); code != 500 || !strings.Contains(body, "[-]apiserver failed") {
		t.Errorf("readyz before: %d %s", code, body)
	}
	if code, body := get(t, s, "/readyz/apiserver"); code != 500 || !strings.Contains(body, "waiting for the API server") {
		t.Errorf("readyz/apiserver: %d %s", code, body)
	}
	ready.Store(true)
	<-s.APIServer.Reached()
	if code, body := get(t, s, "/readyz?verbose"); code != 200 || body != "[+]ping ok\n[+]apiserver ok\n[+]shutdown ok\nreadyz check passed\n" {
		t.Errorf("readyz after: %d %s", code, body)
	}
	if code, body := get(t, s, "/metrics"); code != 200 || !strings.Contains(body, "kubernetes_build_info{") {
		t.Errorf("metrics: %d", code)
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run() = %v", err)
	}
	<-taskEnded
}

func TestAFailingTaskEndsTheService(t *testing.T) {
	s := service(t, "http://127.0.0.1:1")
	err := s.Run(t.Context(), task.Task{Name: "controller", Run: func(context.Context) error { return errors.New("lost the lease") }})
	if err == nil || err.Error() != "controller: lost the lease" {
		t.Errorf("Run() = %v", err)
	}
}

func TestAServiceNeedsToKnowItsAPIServer(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	o := chassis.NewOptions("testd", 0)
	o.Serving.CertDir = t.TempDir()
	if err := o.Complete(); err != nil {
		t.Fatal(err)
	}
	if _, err := chassis.New("testd", o, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "--kubeconfig") {
		t.Errorf("New() = %v", err)
	}
}
