package server

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"binnacle/libs/limit"
	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/server/overload"
	"binnacle/services/apiserver/internal/server/telemetry"
)

// TestLongURLWithoutPermitIsRejected checks that a long URL is rejected unparsed if no permit becomes
// free in time, that the permit is released after parsing, and that a short URL needs no permit.
func TestLongURLWithoutPermitIsRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		permits := limit.New[string](limit.Options{Size: 1})
		permit := limit.Claim[string]{Key: "test"}
		registry := prometheus.NewRegistry()
		config := &Config{
			Overload: overload.Options{LargeRequests: permits},
			Metrics:  telemetry.NewMetrics(registry),
			Kinds:    apiset.NewLive(&apiset.Set{}),
			Logger:   slog.New(slog.DiscardHandler),
		}
		filter := config.withRequestInfo(overload.New(config.Overload, config.telemetryFilters()))
		request := func(length int) *http.Request {
			return httptest.NewRequest("GET", "/api/v1/pods?labelSelector="+strings.Repeat("a", length), nil)
		}

		// 1. While the permit is held, a long URL is rejected and counted.
		permits.TryAcquire(permit)
		response := httptest.NewRecorder()
		filter(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			t.Error("the handler was called")
		})).ServeHTTP(response, request(overload.LargeURL))
		if response.Code != http.StatusTooManyRequests {
			t.Errorf("got %d, want 429", response.Code)
		}
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		rejected := slices.ContainsFunc(families, func(f *dto.MetricFamily) bool {
			return f.GetName() == "apiserver_request_total" && strings.Contains(f.String(), `"429"`)
		})
		if !rejected {
			t.Error("rejected request: got no apiserver_request_total with code 429, want one")
		}

		// 2. With a free permit, a long URL is parsed and the permit is released before the handler runs.
		permits.Release(permit)
		filter(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			if !permits.TryAcquire(permit) {
				t.Error("the permit is still held after the URL was parsed")
			}
		})).ServeHTTP(httptest.NewRecorder(), request(overload.LargeURL))

		// 3. While the handler of step 2 keeps the permit, a short URL is handled.
		handled := false
		filter(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			handled = true
		})).ServeHTTP(httptest.NewRecorder(), request(100))
		if !handled {
			t.Error("a short URL did not reach the handler")
		}
	})
}
