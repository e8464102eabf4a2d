package server_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"binnacle/libs/serving"
	"binnacle/libs/serving/exchange"
	"binnacle/libs/serving/health"
	"binnacle/libs/tracing"
	"binnacle/libs/tracing/tracingtest"
	"binnacle/services/apiserver/internal/security/audit"
	"binnacle/services/apiserver/internal/server"
)

// startServer runs a server in which all requests are long-running, and returns its URL and a
// client.
func startServer(t *testing.T, handler http.Handler, change func(*serving.Options)) (string, *http.Client) {
	t.Helper()
	options := serving.NewOptions("testd", 0)
	options.CertDir = t.TempDir()
	options.BindAddress = net.IPv4(127, 0, 0, 1)
	change(options)
	if err := errors.Join(append(options.Validate(), options.Complete())...); err != nil {
		t.Fatal(err)
	}
	logger := slog.New(slog.DiscardHandler)
	httpsServer, err := serving.NewServer(serving.Config{
		Options: options,
		Logger:  logger,
		Health:  health.New(health.Config{Logger: logger}),
		Metrics: prometheus.NewRegistry(),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- httpsServer.Run(ctx, handler, func(*http.Request) bool { return true }) }()
	transport := &http.Transport{
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
		ForceAttemptHTTP2: true,
	} //nolint:gosec // local server
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return "https://" + httpsServer.Addr().String(), &http.Client{Transport: transport}
}

// TestWatchIsRecordedUntilItEnds checks that a watch that continues after its handler counts as
// running until it ends.
func TestWatchIsRecordedUntilItEnds(t *testing.T) {
	ends := make(chan func(any), 1)
	fixture := newAuditFixture(t, audit.Metadata, nil, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "started\n")
		w.(http.Flusher).Flush()
		if !exchange.Detach(w, func(end func(any)) { ends <- end }) {
			t.Error("the response ends with the handler")
			ends <- func(any) {}
		}
	})
	url, client := startServer(t, fixture, func(*serving.Options) {})
	resp, err := client.Get(url + watchPath)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body := bufio.NewReader(resp.Body)
	if line, err := body.ReadString('\n'); line != "started\n" || err != nil {
		t.Fatalf("got %q, %v, want %q and no error", line, err, "started\n")
	}
	end := <-ends // the handler has returned
	checkRecorded := func(when string, wantEvents []string, wantRunning float64) {
		t.Helper()
		if got := fixture.stages(); !slices.Equal(got, wantEvents) {
			t.Errorf("%s: got audit events %q, want %q", when, got, wantEvents)
		}
		if n := metricValues(t, fixture.registry, "apiserver_longrunning_requests")[""]; n != wantRunning {
			t.Errorf("%s: got %v long-running requests, want %v", when, n, wantRunning)
		}
	}
	checkRecorded("during the watch", []string{"RequestReceived ada", "ResponseStarted 200 ada"}, 1)
	end(nil)
	if rest, err := io.ReadAll(body); len(rest) > 0 || err != nil {
		t.Errorf("end of the watch: got %q, error %v, want the end of the body", rest, err)
	}
	checkRecorded("after the watch", []string{"RequestReceived ada", "ResponseStarted 200 ada", "ResponseComplete 200 ada"}, 0)
}

// TestTracedWatchEndsWithItsHandler checks that the span of a watch has the duration of its
// handler, so a traced watch must end with the handler.
func TestTracedWatchEndsWithItsHandler(t *testing.T) {
	config, err := (&tracing.Options{ConfigFile: tracingtest.Start(t).Config(t)}).Read()
	if err != nil {
		t.Fatal(err)
	}
	traces, err := tracing.New(t.Context(), tracing.Config{
		Configuration: config,
		Logger:        slog.New(slog.DiscardHandler),
		Metrics:       prometheus.NewRegistry(),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer traces.Close()
	for name, provider := range map[string]*tracing.Provider{"without traces": nil, "traced": traces} {
		t.Run(name, func(t *testing.T) {
			outlasts := make(chan bool, 1)
			h := newAuditFixture(t, audit.Metadata, func(c *server.Config) { c.Traces = provider }, func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(w, "started\n")
				outlasts <- exchange.Detach(w, func(end func(any)) { end(nil) })
			})
			url, client := startServer(t, h, func(*serving.Options) {})
			resp, err := client.Get(url + watchPath)
			if err != nil {
				t.Fatal(err)
			}
			if body, err := io.ReadAll(resp.Body); string(body) != "started\n" || err != nil {
				t.Errorf("got %q, %v, want %q and no error", body, err, "started\n")
			}
			resp.Body.Close()
			if got := <-outlasts; got != (provider == nil) {
				t.Errorf("watch outlasts its handler = %t, want %t", got, provider == nil)
			}
		})
	}
}

// TestWatchOfStalledClientIsClosed checks that the watch of a client that does not read is closed.
func TestWatchOfStalledClientIsClosed(t *testing.T) {
	failed := make(chan error, 1)
	handler := newAuditFixture(t, audit.None, nil, func(w http.ResponseWriter, _ *http.Request) {
		for {
			if _, err := w.Write(make([]byte, 64<<10)); err != nil {
				failed <- err
				return
			}
		}
	})
	url, client := startServer(t, handler, func(options *serving.Options) { options.StallTimeout = 50 * time.Millisecond })
	resp, err := client.Get(url + watchPath) // the client does not read the body
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	select {
	case <-failed:
	case <-time.After(20 * time.Second):
		t.Error("the watch of a client that does not read stays open")
	}
}
