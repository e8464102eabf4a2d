package server_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/api/kinds/builtin"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/server"
)

// TestLongAuditIDsAreReplaced checks that audit ids of clients longer than 1 KiB are replaced.
func TestLongAuditIDsAreReplaced(t *testing.T) {
	h := newHandler(t, func(http.ResponseWriter, *http.Request) {}, func(*server.Config) {})
	auditIDOf := func(id string) string {
		r := newRequest("GET", "/api/v1/pods")
		r.Header.Set("Audit-Id", id)
		response := httptest.NewRecorder()
		h.ServeHTTP(response, r)
		return response.Header().Get("Audit-Id")
	}
	if id := strings.Repeat("x", 1<<10); auditIDOf(id) != id {
		t.Error("an id of 1 KiB was replaced")
	}
	for _, id := range []string{"", strings.Repeat("x", 1<<10+1), strings.Repeat("x", 8<<10)} {
		if first, second := auditIDOf(id), auditIDOf(id); first == "" || first == second || len(first) > 64 || first[0] == 'x' && strings.HasPrefix(id, first) {
			t.Errorf("id of %d bytes: got %q, then %q, want two new ids", len(id), first, second)
		}
	}
}

// TestGoawayClosesConfiguredFraction checks that the configured fraction of HTTP/2 requests, and no
// HTTP/1 request, closes its connection.
func TestGoawayClosesConfiguredFraction(t *testing.T) {
	// The expected number of closed connections, by chance and by major version of HTTP.
	for chance, want := range map[float64]map[int]int{0: {1: 0, 2: 0}, 1e-12: {2: 0}, 1: {1: 0, 2: 50}} {
		h := newHandler(t, func(http.ResponseWriter, *http.Request) {}, func(c *server.Config) { c.GoawayChance = chance })
		for proto, closures := range want {
			closed := 0
			for range 50 {
				r := newRequest("GET", "/api/v1/pods")
				r.ProtoMajor = proto
				response := httptest.NewRecorder()
				h.ServeHTTP(response, r)
				if response.Header().Get("Connection") == "close" {
					closed++
				}
			}
			if closed != closures {
				t.Errorf("chance %v, HTTP/%d: got %d of 50 connections closed, want %d", chance, proto, closed, closures)
			}
		}
	}
}

// TestTimeoutParameterShortensDeadline checks that the timeout parameter can shorten the deadline,
// but not extend it.
func TestTimeoutParameterShortensDeadline(t *testing.T) {
	const requestTimeout = time.Minute
	const badRequest, noDeadline = 0, -1
	for query, want := range map[string]time.Duration{
		"":                     requestTimeout,
		"?timeout=":            requestTimeout,
		"?timeout=1h":          requestTimeout,
		"?timeout=0":           requestTimeout,
		"?timeout=0s":          requestTimeout,
		"?timeout=-1s":         requestTimeout,
		"?timeout=30s":         30 * time.Second,
		"?timeout=x":           badRequest,
		"?timeout=30":          badRequest,
		"?watch=1&timeout=30s": noDeadline,
	} {
		var left time.Duration
		handler := newHandler(t, func(_ http.ResponseWriter, r *http.Request) {
			deadline, ok := r.Context().Deadline()
			left = noDeadline
			if ok {
				left = time.Until(deadline)
			}
		}, func(c *server.Config) { c.RequestTimeout = requestTimeout })
		response := httptest.NewRecorder()
		handler.ServeHTTP(response, newRequest("GET", "/api/v1/pods"+query))
		if (want == badRequest) != (response.Code == http.StatusBadRequest) || left > want || want > 0 && left < want-20*time.Second { // a slow machine takes some of it
			t.Errorf("%s: got code %d and %v left, want %v", query, response.Code, left, want)
		}
	}
}

// newAPISet returns the built-in kinds and definitions of things.example.com and vms.ext.test.
func newAPISet(t *testing.T) *apiset.Set {
	t.Helper()
	catalog, err := builtin.DefaultCatalog()
	if err != nil {
		t.Fatal(err)
	}
	set := apiset.Builder{}.Set(catalog, 0)
	for _, names := range []registry.Names{
		{Group: "example.com", Version: "v1", Resource: "things", Kind: "Thing", Namespaced: true},
		{Group: "ext.test", Version: "v1", Resource: "vms", Kind: "VM", Namespaced: true},
	} {
		kind := &registry.Kind{Names: names, Virtual: true, Document: &registry.Document{}}
		set = set.WithDefinitions([]apiset.Definition{
			{Resource: schema.GroupResource{Group: names.Group, Resource: names.Resource}, Versions: []*apiset.Resource{{Kind: kind}}},
		}, 1)
	}
	return set
}
