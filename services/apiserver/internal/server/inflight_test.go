package server_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/api/kinds/builtin"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/rest/responsewriters"
	"binnacle/services/apiserver/internal/server"
)

// named authenticates by a header.
type named struct{}

func (named) Authenticate(r *http.Request) (*request.User, error) {
	return &request.User{Name: r.Header.Get("Name")}, nil
}

// TestWhoStallsStallsNobodyElse: one user's requests never end, and fill what one
// user may hold. Others, and health, are answered all the same.
func TestWhoStallsStallsNobodyElse(t *testing.T) {
	catalog, err := builtin.Catalog()
	if err != nil {
		t.Fatal(err)
	}
	c, err := codec.New(catalog, builtin.Scheme())
	if err != nil {
		t.Fatal(err)
	}
	release := make(chan struct{})
	h, err := server.Handler(server.Config{
		Mux: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Name") == "mallory" && strings.HasPrefix(r.URL.Path, "/api/") {
				<-release
			}
		}),
		Responder: responsewriters.Responder{Codec: c}, Authenticator: named{}, Authorizer: &rules{},
		Metrics: server.NewMetrics(prometheus.NewRegistry()), Kinds: apiset.NewLive(apiset.Builder{}.Set(catalog, 0)),
		Logger: slog.New(slog.DiscardHandler), RequestTimeout: time.Minute, MaxInFlight: 20, MaxMutatingInFlight: 10,
	})
	if err != nil {
		t.Fatal(err)
	}
	do := func(name, method, path string) int {
		r := httptest.NewRequest(method, path, nil)
		r.Header.Set("Name", name)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
	var wg sync.WaitGroup
	refused := make(chan int, 100)
	for range 50 {
		for _, method := range []string{"GET", "POST"} {
			wg.Go(func() { refused <- do("mallory", method, "/api/v1/namespaces/a/pods") })
		}
	}
	// What is not refused waits, so the others have come in before.
	for range 50 - 9 + 50 - 5 {
		if code := <-refused; code != http.StatusTooManyRequests {
			t.Errorf("code %d", code)
		}
	}
	for _, path := range []string{"/livez", "/readyz", "/healthz", "/livez/etcd", "/api/v1/namespaces/a/pods"} {
		if code := do("alice", "GET", path); code != 200 {
			t.Errorf("%s: %d for another user", path, code)
		}
	}
	if code := do("alice", "POST", "/api/v1/namespaces/a/pods"); code != 200 {
		t.Errorf("a write of another user: %d", code)
	}
	for _, path := range []string{"/livez", "/readyz", "/healthz", "/livez/etcd"} { // which has no share
		if code := do("mallory", "GET", path); code != 200 {
			t.Errorf("%s: %d beyond a user's share", path, code)
		}
	}
	if code := do("mallory", "GET", "/api/v1/namespaces/a/pods/livez"); code != http.StatusTooManyRequests {
		t.Errorf("code %d for what is no health", code)
	}
	if code := do("mallory", "GET", "/version"); code != http.StatusTooManyRequests {
		t.Errorf("code %d beyond a user's share", code)
	}
	close(release)
	wg.Wait()
	for range 9 + 5 { // reads and writes, which have shares of their own
		if code := <-refused; code != 200 {
			t.Errorf("code %d within a user's share", code)
		}
	}
	if code := do("alice", "GET", "/livezz"); code != 200 {
		t.Errorf("code %d", code)
	}
}
