package authzwebhook_test

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"binnacle/libs/authorizer"
	"binnacle/services/apiserver/internal/security/authz/authzwebhook"
)

// BenchmarkCachedDecision measures a cached decision.
func BenchmarkCachedDecision(b *testing.B) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{
			"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "status": map[string]any{"allowed": true},
		})
	}))
	defer s.Close()
	z, err := authzwebhook.New(authzwebhook.Config{
		Name:           "bench",
		KubeconfigFile: writeKubeconfig(b, s, s.URL),
		Version:        "v1",
		Timeout:        10 * time.Second,
		AuthorizedTTL:  time.Hour,
		Metrics:        authzwebhook.NewMetrics(prometheus.NewRegistry()),
		Logger:         slog.New(slog.DiscardHandler),
	})
	if err != nil {
		b.Fatal(err)
	}
	defer z.Close()
	attrs := attributesFor("x")
	b.ReportAllocs()
	for b.Loop() {
		if d, _, err := z.Authorize(b.Context(), attrs); d != authorizer.Allow {
			b.Fatal(d, err)
		}
	}
}
