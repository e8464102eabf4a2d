package server_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/server"
)

func TestWritesWaitForStorageVersion(t *testing.T) {
	h := newHandler(t, func(http.ResponseWriter, *http.Request) {}, func(c *server.Config) {
		c.StorageVersionPending = func(_ context.Context, r schema.GroupResource, _ bool) (error, bool) {
			switch r.Resource {
			case "pods", "leases", "storageversions":
				return errors.New("etcd is gone"), true
			}
			return nil, false
		}
	})
	for _, c := range []struct {
		method, path string
		held         bool
	}{
		{"POST", "/api/v1/namespaces/a/pods", true},
		{"PUT", "/api/v1/namespaces/a/pods/p/status", true},
		{"DELETE", "/api/v1/namespaces/a/pods", true},
		{"GET", "/api/v1/namespaces/a/pods", false},
		{"GET", "/api/v1/pods?watch=1", false},
		{"POST", "/api/v1/namespaces/a/configmaps", false},
		{"PUT", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/l", false},
		{"PUT", "/apis/coordination.k8s.io/v1/namespaces/a/leases/l", true},
		{"PUT", "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions/core.pods", false},
		{"POST", "/apis/example.com/v1/storageversions", true},
		{"PUT", "/apis/internal.apiserver.k8s.io/v1alpha1/leases/l", true},
		{"PUT", "/apis/example.com/v1/namespaces/kube-system/leases/l", true},
		{"PUT", "/apis/coordination.k8s.io/v1/namespaces/kube-system/pods/l", true},
		{"POST", "/version", false},
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, newRequest(c.method, c.path))
		if (w.Code == http.StatusServiceUnavailable) != c.held {
			t.Errorf("%s %s: got status %d: %s, want a delayed request: %t", c.method, c.path, w.Code, w.Body, c.held)
		}
		if c.held &&
			(!strings.Contains(w.Body.String(), "wait for storage version registration to complete for resource: ") ||
				!strings.Contains(w.Body.String(), ", last seen error: etcd is gone")) {
			t.Errorf("%s %s: %s", c.method, c.path, w.Body)
		}
	}
}
