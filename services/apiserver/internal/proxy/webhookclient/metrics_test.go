package webhookclient_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/client-go/rest"

	"binnacle/services/apiserver/internal/proxy/webhookclient"
)

// TestSeriesOfHostEndWithItsClients checks that series of hosts, which API objects name, are
// removed with the last client.
func TestSeriesOfHostEndWithItsClients(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "x") }))
	defer server.Close()
	at, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	metrics := webhookclient.NewMetrics(registry)
	series := func() int {
		t.Helper()
		n, err := testutil.GatherAndCount(registry, "rest_client_requests_total",
			"rest_client_request_duration_seconds", "rest_client_request_size_bytes", "rest_client_response_size_bytes")
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	get := func(c *http.Client) {
		t.Helper()
		resp, err := c.Get(server.URL)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
	first, releaseFirst, err := webhookclient.NewClient(&rest.Config{}, at, 100, metrics)
	if err != nil {
		t.Fatal(err)
	}
	second, releaseSecond, err := webhookclient.NewClient(&rest.Config{}, at, 100, metrics)
	if err != nil {
		t.Fatal(err)
	}
	get(first)
	get(second)
	if n := series(); n != 4 {
		t.Errorf("got %d series of a host in use, want 4", n)
	}
	releaseFirst()
	releaseFirst()
	if n := series(); n != 4 {
		t.Errorf("got %d series of a host that another client uses, want 4", n)
	}
	releaseSecond()
	if n := series(); n != 0 {
		t.Errorf("got %d series of a host without clients, want none", n)
	}
	get(second) // a call in progress
	second.CloseIdleConnections()
	releaseSecond()
	if n := series(); n != 0 {
		t.Errorf("got %d series after a late response, want none", n)
	}
}
