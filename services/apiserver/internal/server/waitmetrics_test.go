package server_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/api/kinds/builtin"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/rest/responsewriters"
	"binnacle/services/apiserver/internal/server"
	"binnacle/services/apiserver/internal/server/overload"
	"binnacle/services/apiserver/internal/server/telemetry"
)

// TestSLIDurationExcludesWaits checks that waits count in the request duration, but not in the SLI
// duration.
func TestSLIDurationExcludesWaits(t *testing.T) {
	catalog, err := builtin.DefaultCatalog()
	if err != nil {
		t.Fatal(err)
	}
	apiCodec, err := codec.New(catalog, builtin.Scheme())
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	handler, err := server.Handler(server.Config{
		Mux: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			request.FromContext(r.Context()).WaitTimes.Add(time.Hour)
		}),
		Responder:      responsewriters.Responder{Codec: apiCodec},
		Authenticator:  headerAuthenticator{},
		Authorizer:     &impersonationRules{},
		Metrics:        telemetry.NewMetrics(registry),
		Kinds:          apiset.NewLive(apiset.Builder{}.Set(catalog, 0)),
		Logger:         slog.New(slog.DiscardHandler),
		RequestTimeout: time.Minute,
		Overload:       overload.Options{MaxInFlight: 20, MaxMutatingInFlight: 10},
	})
	if err != nil {
		t.Fatal(err)
	}
	const pods = "/api/v1/namespaces/a/pods"
	send := func(method, path, media string) {
		r := httptest.NewRequest(method, path, strings.NewReader("12345"))
		r.Header.Set("Name", "ann")
		r.Header.Set("Content-Type", media)
		handler.ServeHTTP(httptest.NewRecorder(), r)
	}
	send("GET", pods, "")
	send("GET", pods+"?watch=1", "")
	send("POST", pods+"?fieldValidation=Lax", "")
	send("PATCH", pods+"/p?fieldValidation=Warn", "application/apply-patch+yaml; charset=utf-8")
	send("DELETE", pods, "")
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	sums := map[string]float64{}
	counts := map[string]uint64{}
	for _, family := range families {
		for _, metric := range family.Metric {
			if family.GetType() == dto.MetricType_HISTOGRAM && metric.Histogram.GetSampleCount() > 0 {
				name := family.GetName()
				for _, label := range metric.Label {
					switch label.GetName() {
					case "verb", "filter", "field_validation":
						name += " " + label.GetValue()
					}
				}
				sums[name] += metric.Histogram.GetSampleSum()
				counts[name] += metric.Histogram.GetSampleCount()
			}
		}
	}
	// Each request adds a wait of an hour, so its SLI duration is about -3600 s.
	for _, verb := range []string{"GET", "LIST", "POST", "APPLY", "DELETECOLLECTION", "WATCH"} {
		sliDuration, duration := "apiserver_request_sli_duration_seconds "+verb, "apiserver_request_duration_seconds "+verb
		switch {
		case verb == "GET":
			if counts[duration] != 0 {
				t.Errorf("got %v durations of GET, want none: the requests are lists", counts[duration])
			}
		case verb == "WATCH":
			if counts[duration] != 1 || counts[sliDuration] != 0 {
				t.Errorf("watch: got %v durations and %v SLI durations, want 1 and 0", counts[duration], counts[sliDuration])
			}
		case counts[duration] != 1 || counts[sliDuration] != 1 || sums[duration] > 1800 || sums[sliDuration] > -1800:
			t.Errorf("%s: got duration %v s and SLI duration %v s, want at most 1800 and -1800", verb, sums[duration], sums[sliDuration])
		}
	}
	for name, want := range map[string]uint64{
		"apiserver_request_filter_duration_seconds authentication": 5,
		"apiserver_request_filter_duration_seconds authorization":  5,
		"apiserver_request_filter_duration_seconds impersonation":  5,
		"apiserver_request_filter_duration_seconds maxinflight":    4, // not the watch
		"field_validation_request_duration_seconds invalid":        1,
		"field_validation_request_duration_seconds Warn":           1,
		"field_validation_request_duration_seconds ":               1,
		"apiserver_request_body_size_bytes create":                 1,
		"apiserver_request_body_size_bytes patch":                  1,
		"apiserver_request_body_size_bytes delete_collection":      1,
	} {
		if counts[name] != want {
			t.Errorf("%s: got %d, want %d", name, counts[name], want)
		}
	}
	if sums["apiserver_request_body_size_bytes create"] != 5 {
		t.Errorf("create: got body sizes of %v bytes, want 5", sums["apiserver_request_body_size_bytes create"])
	}
}
