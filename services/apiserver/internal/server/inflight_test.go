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
	"binnacle/services/apiserver/internal/server/overload"
	"binnacle/services/apiserver/internal/server/telemetry"
)

// headerAuthenticator takes the user name from a header.
type headerAuthenticator struct{}

func (headerAuthenticator) Authenticate(r *http.Request) (*request.User, error) {
	return &request.User{Name: r.Header.Get("Name")}, nil
}

// TestStalledRequestsDoNotBlockOtherUsers checks that other users and health checks are served while
// the requests of one user, which never end, fill the share of that user: 9 of 20 reads and 5 of 10
// writes.
func TestStalledRequestsDoNotBlockOtherUsers(t *testing.T) {
	catalog, err := builtin.DefaultCatalog()
	if err != nil {
		t.Fatal(err)
	}
	apiCodec, err := codec.New(catalog, builtin.Scheme())
	if err != nil {
		t.Fatal(err)
	}
	release := make(chan struct{})
	handler, err := server.Handler(server.Config{
		Mux: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Name") == "mallory" && strings.HasPrefix(r.URL.Path, "/api/") {
				<-release
			}
		}),
		Responder:      responsewriters.Responder{Codec: apiCodec},
		Authenticator:  headerAuthenticator{},
		Authorizer:     &impersonationRules{},
		Metrics:        telemetry.NewMetrics(prometheus.NewRegistry()),
		Kinds:          apiset.NewLive(apiset.Builder{}.Set(catalog, 0)),
		Logger:         slog.New(slog.DiscardHandler),
		RequestTimeout: time.Minute,
		Overload:       overload.Options{MaxInFlight: 20, MaxMutatingInFlight: 10},
	})
	if err != nil {
		t.Fatal(err)
	}
	send := func(name, method, path string) int {
		r := httptest.NewRequest(method, path, nil)
		r.Header.Set("Name", name)
		response := httptest.NewRecorder()
		handler.ServeHTTP(response, r)
		return response.Code
	}
	var wg sync.WaitGroup
	rejected := make(chan int, 100)
	for range 50 {
		for _, method := range []string{"GET", "POST"} {
			wg.Go(func() { rejected <- send("mallory", method, "/api/v1/namespaces/a/pods") })
		}
	}
	// The admitted requests wait in the handler.
	const shareOfReads, shareOfWrites = 9, 5
	for range 50 - shareOfReads + 50 - shareOfWrites {
		if code := <-rejected; code != http.StatusTooManyRequests {
			t.Errorf("beyond the share: got %d, want 429", code)
		}
	}
	for _, path := range []string{"/livez", "/readyz", "/healthz", "/livez/etcd", "/api/v1/namespaces/a/pods"} {
		if code := send("alice", "GET", path); code != 200 {
			t.Errorf("%s of another user: got %d, want 200", path, code)
		}
	}
	if code := send("alice", "POST", "/api/v1/namespaces/a/pods"); code != 200 {
		t.Errorf("write of another user: got %d, want 200", code)
	}
	for _, path := range []string{"/livez", "/readyz", "/healthz", "/livez/etcd"} { // health checks have no limit
		if code := send("mallory", "GET", path); code != 200 {
			t.Errorf("%s beyond the share: got %d, want 200", path, code)
		}
	}
	if code := send("mallory", "GET", "/api/v1/namespaces/a/pods/livez"); code != http.StatusTooManyRequests {
		t.Errorf("pod named livez: got %d, want 429", code)
	}
	if code := send("mallory", "GET", "/version"); code != http.StatusTooManyRequests {
		t.Errorf("/version beyond the share: got %d, want 429", code)
	}
	close(release)
	wg.Wait()
	for range shareOfReads + shareOfWrites {
		if code := <-rejected; code != 200 {
			t.Errorf("within the share: got %d, want 200", code)
		}
	}
	if code := send("alice", "GET", "/livezz"); code != 200 {
		t.Errorf("/livezz: got %d, want 200", code)
	}
}
