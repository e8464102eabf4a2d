package server_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/security/flowcontrol"
	"binnacle/services/apiserver/internal/server"
	"binnacle/services/apiserver/internal/server/telemetry"
)

// inFlightRequests returns the number of running requests according to the metrics.
func inFlightRequests(t *testing.T, gatherer *prometheus.Registry) (total float64) {
	t.Helper()
	families, err := gatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == "apiserver_current_inflight_requests" {
			for _, metric := range family.Metric {
				total += metric.GetGauge().GetValue()
			}
		}
	}
	return total
}

// TestLongRunningRequestsPassFlowControl checks that a long-running request holds its seat until it
// has started and does not count as in flight. Watches and rejected requests have the flow control
// headers.
func TestLongRunningRequestsPassFlowControl(t *testing.T) {
	// One priority level with one seat serves all requests.
	everything := []string{"*"}
	schema := &flowcontrolv1.FlowSchema{ObjectMeta: metav1.ObjectMeta{Name: "s", UID: "u"}, Spec: flowcontrolv1.FlowSchemaSpec{
		PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: "catch-all"}, MatchingPrecedence: 1,
		Rules: []flowcontrolv1.PolicyRulesWithSubjects{{
			Subjects: []flowcontrolv1.Subject{{Kind: flowcontrolv1.SubjectKindUser, User: &flowcontrolv1.UserSubject{Name: "ann"}}},
			ResourceRules: []flowcontrolv1.ResourcePolicyRule{
				{Verbs: everything, APIGroups: everything, Resources: everything, ClusterScope: true, Namespaces: everything},
			},
		}},
	}}
	registry := prometheus.NewRegistry()
	flow := flowcontrol.New(flowcontrol.Options{
		Seats:   1,
		MaxWait: time.Second,
		Metrics: flowcontrol.NewMetrics(prometheus.NewRegistry(), 1, 1, time.Now),
	})
	level := &flowcontrolv1.PriorityLevelConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "catch-all", UID: "v"}}
	level.Spec.Type = flowcontrolv1.PriorityLevelEnablementLimited
	flow.SetConfig(flowcontrol.Compile([]*flowcontrolv1.FlowSchema{schema}, []*flowcontrolv1.PriorityLevelConfiguration{level}))
	var inside func(*http.Request)
	h := newHandler(t, func(_ http.ResponseWriter, r *http.Request) { inside(r) }, func(c *server.Config) {
		c.Metrics = telemetry.NewMetrics(registry)
		c.Overload.Flow = flow
		c.Overload.Width = func(*requestinfo.Info, int) flowcontrol.Width { return flowcontrol.Width{Seats: 1} }
	})
	send := func(path string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, newRequest("GET", path))
		return w
	}
	type response struct {
		code           int
		hasFlowHeaders bool
	}
	checkResponse := func(path string, w *httptest.ResponseRecorder, want response) {
		t.Helper()
		_, hasSchema := w.Header()[http.CanonicalHeaderKey(flowcontrolv1.ResponseHeaderMatchedFlowSchemaUID)]
		_, hasLevel := w.Header()[http.CanonicalHeaderKey(flowcontrolv1.ResponseHeaderMatchedPriorityLevelConfigurationUID)]
		if got := (response{w.Code, hasSchema}); got != want || hasLevel != hasSchema {
			t.Errorf("%s: got %+v, header fields %v, want %+v", path, got, w.Header(), want)
		}
	}
	rejected := response{code: http.StatusTooManyRequests, hasFlowHeaders: true}
	served := response{code: http.StatusOK, hasFlowHeaders: true}
	servedUnclassified := response{code: http.StatusOK}
	const pods, exec = "/api/v1/namespaces/a/pods", "/api/v1/namespaces/a/pods/p/exec"
	for path, want := range map[string]response{pods: served, pods + "?watch=1": served, exec: servedUnclassified} {
		inside = func(r *http.Request) {
			longRunning := requestinfo.FromContext(r.Context()).LongRunning()
			wantInFlight := 1.0
			if longRunning {
				wantInFlight = 0
			}
			if n := inFlightRequests(t, registry); n != wantInFlight {
				t.Errorf("%s: got %v requests in flight, want %v", path, n, wantInFlight)
			}
			checkResponse(exec, send(exec), rejected) // the only seat is taken
			if !longRunning {
				return
			}
			request.Started(r.Context())
			inside = func(*http.Request) {}
			checkResponse(pods, send(pods), served)
		}
		checkResponse(path, send(path), want)
	}
	inside = func(*http.Request) {}
	if w := send("/version"); w.Code != http.StatusOK ||
		len(w.Header()[http.CanonicalHeaderKey(flowcontrolv1.ResponseHeaderMatchedFlowSchemaUID)]) > 0 {
		t.Errorf("GET /version without a flow schema UID: got %d %v, want 200 without the header of the UID", w.Code, w.Header())
	}
}

// TestStrictTransportSecurityHeader checks that the header has the configured directives.
func TestStrictTransportSecurityHeader(t *testing.T) {
	for _, directives := range [][]string{nil, {"max-age=1", "preload"}} {
		h := newHandler(t, func(http.ResponseWriter, *http.Request) {}, func(c *server.Config) { c.StrictTransportSecurity = directives })
		response := httptest.NewRecorder()
		h.ServeHTTP(response, newRequest("GET", "/version"))
		values, exists := response.Header()["Strict-Transport-Security"]
		if exists != (directives != nil) || exists && values[0] != "max-age=1; preload" {
			t.Errorf("configured %q: got header %q, want them joined by \"; \", or no header", directives, values)
		}
	}
}

// TestReloadingRejectsOnlyReloadedResources checks that requests for a resource are rejected with
// 429 while its cache is being reloaded.
func TestReloadingRejectsOnlyReloadedResources(t *testing.T) {
	handler := newHandler(t, func(http.ResponseWriter, *http.Request) {}, func(c *server.Config) {
		c.Reloading = func(info *requestinfo.Info) bool { return info.Resource != "configmaps" }
	})
	for path, want := range map[string]int{"/api/v1/pods": 429, "/api/v1/configmaps": 200, "/version": 200, "/readyz": 200} {
		response := httptest.NewRecorder()
		handler.ServeHTTP(response, newRequest("GET", path))
		if response.Code != want {
			t.Errorf("%s: got %d, want %d", path, response.Code, want)
		}
	}
}
