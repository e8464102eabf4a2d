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

	"github.com/prometheus/client_golang/prometheus"

	"binnacle/libs/serving"
	"binnacle/libs/serving/health"
	"binnacle/services/apiserver/internal/audit"
)

// TestWhatOutlastsItsHandler is told of as under way, and as over when it is.
func TestWhatOutlastsItsHandler(t *testing.T) {
	ends := make(chan func(any), 1)
	a := newAudited(t, audit.Metadata, nil, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "begun\n")
		w.(http.Flusher).Flush()
		if !serving.Last(w, func(end func(any)) { ends <- end }) {
			t.Error("it does not last")
			ends <- func(any) {}
		}
	})
	o := serving.NewOptions("testd", 0)
	o.CertDir, o.BindAddress = t.TempDir(), net.IPv4(127, 0, 0, 1)
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
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, a) }()
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true} //nolint:gosec // it is here
	defer func() {
		transport.CloseIdleConnections()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	resp, err := (&http.Client{Transport: transport}).Get("https://" + s.Addr().String() + auditedWatch)
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
