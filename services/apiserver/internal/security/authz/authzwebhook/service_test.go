package authzwebhook_test

import (
	"encoding/json"
	"encoding/pem"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"binnacle/libs/authorizer"
	"binnacle/services/apiserver/internal/security/authz/authzwebhook"
)

// TestMain fails if a test leaves goroutines behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// service is an authorization webhook whose responses a test sets.
type service struct {
	*httptest.Server
	calls atomic.Int64
	// respond fills the status of a review. It returns true if it has written the response itself.
	respond func(w http.ResponseWriter, spec map[string]any, status *authorizationv1.SubjectAccessReviewStatus) bool
}

func newService(t *testing.T) *service {
	t.Helper()
	created := &service{}
	created.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		created.calls.Add(1)
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		var review struct {
			APIVersion string         `json:"apiVersion"`
			Kind       string         `json:"kind"`
			Spec       map[string]any `json:"spec"`
		}
		if err := json.Unmarshal(body, &review); err != nil || review.Kind != "SubjectAccessReview" {
			t.Errorf("got body %s: %v; want no error, \"SubjectAccessReview\"", body, err)
		}
		var status authorizationv1.SubjectAccessReviewStatus
		if created.respond != nil && created.respond(w, review.Spec, &status) {
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"apiVersion": review.APIVersion, "kind": review.Kind, "status": status})
	}))
	t.Cleanup(created.Close)
	return created
}

// writeKubeconfig writes a kubeconfig for a server.
func writeKubeconfig(t testing.TB, s *httptest.Server, url string) string {
	t.Helper()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	c := clientcmdapi.NewConfig()
	c.Clusters["c"] = &clientcmdapi.Cluster{Server: url, CertificateAuthorityData: ca}
	c.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: "secret"}
	c.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	c.CurrentContext = "x"
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*c, file); err != nil {
		t.Fatal(err)
	}
	return file
}

// clock is a clock that a test advances.
type clock struct{ nanoseconds atomic.Int64 }

func (c *clock) now() time.Time { return time.Unix(0, c.nanoseconds.Load()) }

// advance moves the clock forward.
func (c *clock) advance(d time.Duration) { c.nanoseconds.Add(int64(d)) }

type fixture struct {
	*authzwebhook.Authorizer
	service  *service
	clock    *clock
	registry *prometheus.Registry
}

func newFixture(t *testing.T, change func(*authzwebhook.Config)) *fixture {
	t.Helper()
	created := &fixture{service: newService(t), clock: &clock{}, registry: prometheus.NewRegistry()}
	config := authzwebhook.Config{
		Name:            "test",
		KubeconfigFile:  writeKubeconfig(t, created.service.Server, created.service.URL+"/authorize"),
		Version:         "v1",
		Timeout:         10 * time.Second,
		AuthorizedTTL:   5 * time.Minute,
		UnauthorizedTTL: 30 * time.Second,
		MaxWaiting:      400,
		Metrics:         authzwebhook.NewMetrics(created.registry),
		Logger:          slog.New(slog.DiscardHandler),
		Now:             created.clock.now,
	}
	if change != nil {
		change(&config)
	}
	z, err := authzwebhook.New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(z.Close)
	created.Authorizer = z
	return created
}

func attributesFor(name string) *authorizer.Attributes {
	return &authorizer.Attributes{
		User: &authorizer.User{
			Name:   "alice",
			UID:    "u",
			Groups: []string{"dev"},
			Extra:  map[string][]string{"scope": {"a", "b"}},
		},
		Verb:         "get",
		Resource:     true,
		Namespace:    "ns",
		Version:      "v1",
		ResourceName: "pods",
		Name:         name,
	}
}
