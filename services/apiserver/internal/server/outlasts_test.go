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
	"binnacle/libs/serving/health"
	"binnacle/libs/tracing"
	"binnacle/libs/tracing/tracingtest"
	"binnacle/services/apiserver/internal/security/audit"
	"binnacle/services/apiserver/internal/server"
)

// behind runs a server before a handler, all requests to which last, and returns its URL and a client.
func behind(t *testing.T, h http.Handler, change func(*serving.Options)) (string, *http.Client) {
	t.Helper()
	o := serving.NewOptions("testd", 0)
	o.CertDir, o.BindAddress = t.TempDir(), net.IPv4(127, 0, 0, 1)
	change(o)
	if err := errors.Join(append(o.Validate(), o.Complete())...); err != nil {
		t.Fatal(err)
	}
	logger := slog.New(slog.DiscardHandler)
	s, err := serving.NewServer(serving.Config{
		Options: o, Logger: logger, Health: health.New(health.Config{Logger: logger}), Metrics: prometheus.NewRegistry(),
		LongRunning: func(*http.Request) bool { return true },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, h) }()
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true} //nolint:gosec // it is here
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return "https://" + s.Addr().String(), &http.Client{Transport: transport}
}

// TestWhatOutlastsItsHandler is told of as under way, and as over when it is.
func TestWhatOutlastsItsHandler(t *testing.T) {
	ends := make(chan func(any), 1)
	a := newAudited(t, audit.Metadata, nil, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "begun\n")
		w.(http.Flusher).Flush()
		if !serving.Detach(w, func(end func(any)) { ends <- end }) {
			t.Error("it does not last")
			ends <- func(any) {}
		}
	})
	url, client := behind(t, a, func(*serving.Options) {})
	resp, err := client.Get(url + auditedWatch)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body := bufio.NewReader(resp.Body)
	if line, err := body.ReadString('\n'); line != "begun\n" || err != nil {
		t.Fatalf("%q, %v", line, err)
	}
	end := <-ends // the handler has returned
	is := func(what string, want []string, running float64) {
		t.Helper()
		if got := a.stages(); !slices.Equal(got, want) {
			t.Errorf("%s, the audit has %q", what, got)
		}
		if n := seriesOf(t, a.registry, "apiserver_longrunning_requests")[""]; n != running {
			t.Errorf("%s, %v last", what, n)
		}
	}
	is("while it lasts", []string{"RequestReceived ada", "ResponseStarted 200 ada"}, 1)
	end(nil)
	if rest, err := io.ReadAll(body); len(rest) > 0 || err != nil {
		t.Errorf("%q, %v", rest, err)
	}
	is("when it is over", []string{"RequestReceived ada", "ResponseStarted 200 ada", "ResponseComplete 200 ada"}, 0)
}

// TestTracedWatchesDoNotOutlastTheirHandlers: their spans end with these, and tell how long they took.
func TestTracedWatchesDoNotOutlastTheirHandlers(t *testing.T) {
	config, err := (&tracing.Options{ConfigFile: tracingtest.Start(t).Config(t)}).Read()
	if err != nil {
		t.Fatal(err)
	}
	traces, err := tracing.New(t.Context(), tracing.Config{Configuration: config, Logger: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	defer traces.Close()
	for name, p := range map[string]*tracing.Provider{"without traces": nil, "traced": traces} {
		t.Run(name, func(t *testing.T) {
			lasts := make(chan bool, 1)
			h := newAudited(t, audit.Metadata, func(c *server.Config) { c.Traces = p }, func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(w, "begun\n")
				lasts <- serving.Detach(w, func(end func(any)) { end(nil) })
			})
			url, client := behind(t, h, func(*serving.Options) {})
			resp, err := client.Get(url + auditedWatch)
			if err != nil {
				t.Fatal(err)
			}
			if body, err := io.ReadAll(resp.Body); string(body) != "begun\n" || err != nil {
				t.Errorf("%q, %v", body, err)
			}
			resp.Body.Close()
			if got := <-lasts; got != (p == nil) {
				t.Errorf("it outlasts its handler: %t", got)
			}
		})
	}
}

// TestClientsOfWatchesHaveToRead what comes: those of other answers that last may take their time.
func TestClientsOfWatchesHaveToRead(t *testing.T) {
	failed := make(chan error, 1)
	h := newAudited(t, audit.None, nil, func(w http.ResponseWriter, _ *http.Request) {
		for {
			if _, err := w.Write(make([]byte, 64<<10)); err != nil {
				failed <- err
				return
			}
		}
	})
	url, client := behind(t, h, func(o *serving.Options) { o.StallTimeout = 50 * time.Millisecond })
	resp, err := client.Get(url + auditedWatch) // and nobody reads it
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	select {
	case <-failed:
	case <-time.After(20 * time.Second):
		t.Error("the client of a watch is waited for though it reads nothing")
	}
}
