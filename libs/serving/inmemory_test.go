package serving_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"binnacle/libs/pipetest"
	"binnacle/libs/serving"
	"binnacle/libs/serving/health"
)

// testInMemory runs test in a synctest bubble with a server whose connections are in memory.
func testInMemory(t *testing.T, handler http.HandlerFunc, test func(t *testing.T, r *testServer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { time.Sleep(time.Minute) }) // closed connections linger until then
		options, counts := testOptions(t), prometheus.NewRegistry()
		if err := errors.Join(append(options.Validate(), options.Complete())...); err != nil {
			t.Fatal(err)
		}
		server, err := serving.NewServer(serving.Config{
			Options: options,
			Logger:  discardLogger(),
			Health:  health.New(health.Config{Logger: discardLogger()}),
			Metrics: counts,
		})
		if err != nil {
			t.Fatal(err)
		}
		defer server.Close()
		listener := pipetest.Listen(443)
		dial := func(ctx context.Context, _, _ string) (net.Conn, error) { return listener.Dial(ctx) }
		stop, err := server.ServeOn(listener, handler)
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := stop(); err != nil {
				t.Error(err)
			}
		}()
		transport := &http.Transport{
			DialContext:       dial,
			TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
			ForceAttemptHTTP2: true,
		}
		defer transport.CloseIdleConnections()
		test(t, &testServer{
			Server:  server,
			url:     "https://server",
			client:  &http.Client{Transport: transport},
			metrics: counts,
			connect: dial,
		})
	})
}
