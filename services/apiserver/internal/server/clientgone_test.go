package server_test

import (
	"context"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/api/kinds/builtin"
	"binnacle/services/apiserver/internal/server"
	"binnacle/services/apiserver/internal/server/telemetry"
)

// TestCanceledRequestCountsAs499 checks that a failure after the client has gone counts as 499, not
// as a server error.
func TestCanceledRequestCountsAs499(t *testing.T) {
	catalog, err := builtin.DefaultCatalog()
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	handler, err := server.Handler(server.Config{
		Mux:            http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }),
		Authenticator:  headerAuthenticator{},
		Authorizer:     &impersonationRules{},
		Metrics:        telemetry.NewMetrics(registry),
		Kinds:          apiset.NewLive(apiset.Builder{}.Set(catalog, 0)),
		Logger:         slog.New(slog.DiscardHandler),
		RequestTimeout: time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, disconnect := context.WithCancel(t.Context())
	disconnect()
	handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, "GET", "/api/v1/namespaces/a/pods", nil))
	handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/api/v1/namespaces/a/pods", nil)) // counts as 500
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, family := range families {
		if family.GetName() != "apiserver_request_total" {
			continue
		}
		for _, metric := range family.Metric {
			for _, label := range metric.Label {
				if label.GetName() == "code" {
					got[label.GetValue()] = metric.GetCounter().GetValue()
				}
			}
		}
	}
	if want := map[string]float64{"499": 1, "500": 1}; !maps.Equal(got, want) {
		t.Errorf("got requests by code %v, want %v", got, want)
	}
}
