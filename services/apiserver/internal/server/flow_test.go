package server

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"binnacle/services/apiserver/internal/flowcontrol"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/status"
)

// TestNothingIsDoneForStreamsThatWereReset: a stream that is opened and reset at once
// costs no more than its way to here.
func TestNothingIsDoneForStreamsThatWereReset(t *testing.T) {
	reg := prometheus.NewRegistry()
	c := &Config{Metrics: NewMetrics(reg), Flow: flowcontrol.New(flowcontrol.Options{
		Seats: 10, MaxWait: time.Second, Metrics: flowcontrol.NewMetrics(reg, 10, 10, time.Now),
	})}
	for name, x := range map[string]struct {
		proto int
		over  bool
		done  bool
	}{
		"a stream": {2, false, true}, "one that was reset": {2, true, false}, "a connection of HTTP/1 that is half closed": {1, true, true},
	} {
		done := false
		h := c.fair(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { done = true }))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if x.over {
			cancel()
		}
		ctx = request.WithUser(request.With(ctx, &request.Operation{Verb: "get", Path: "/version"}), somebody("root", "system:masters"))
		r := httptest.NewRequest("GET", "/version", nil).WithContext(ctx)
		r.ProtoMajor = x.proto
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if done != x.done || !done && w.Code != status.ClosedRequest {
			t.Errorf("%s: done %t, %d", name, done, w.Code)
		}
	}
}
