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

// TestLongURLWithoutPermitIsRejected checks that a long URL is rejected if no permit becomes free
// in time. It is not parsed then.
func TestLongURLWithoutPermitIsRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		permits := limit.New[string](limit.Options{Size: 1})
		permit := limit.Claim[string]{Key: "test"}
		counts := prometheus.NewRegistry()
		c := &Config{
			Overload: overload.Options{LargeRequests: permits},
			Metrics:  telemetry.NewMetrics(counts),
			Kinds:    apiset.NewLive(&apiset.Set{}),
			Logger:   slog.New(slog.DiscardHandler),
		}
		withRequestInfo := c.withRequestInfo(overload.New(c.Overload, c.telemetryFilters()))
		request := func(length int) *http.Request {
			return httptest.NewRequest("GET", "/api/v1/pods?labelSelector="+strings.Repeat("a", length), nil)
		}
		permits.TryAcquire(permit)
		w := httptest.NewRecorder()
		withRequestInfo(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			t.Error("the handler was called")
		})).ServeHTTP(w, request(overload.LargeURL))
		if w.Code != http.StatusTooManyRequests {
			t.Errorf("got %d, want 429", w.Code)
		}
		families, err := counts.Gather()
		if err != nil {
			t.Fatal(err)
		}
		rejected := slices.ContainsFunc(families, func(f *dto.MetricFamily) bool {
			return f.GetName() == "apiserver_request_total" && strings.Contains(f.String(), `"429"`)
		})
		if !rejected {
			t.Error("a request rejected for a long URL is not counted")
		}
		permits.Release(permit)
		withRequestInfo(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			if !permits.TryAcquire(permit) {
				t.Error("the permit is still held after the URL was parsed")
			}
		})).ServeHTTP(httptest.NewRecorder(), request(overload.LargeURL))
		handled := false
		withRequestInfo(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			handled = true
		})).ServeHTTP(httptest.NewRecorder(), request(100))
		if !handled {
			t.Error("a short URL did not reach the handler")
		}
	})
}
