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

// TestWritesWaitForStorageVersion checks that writes of a resource are rejected until its storage
// version is registered, except for the writes that the registration needs.
func TestWritesWaitForStorageVersion(t *testing.T) {
	handler := newHandler(t, func(http.ResponseWriter, *http.Request) {}, func(c *server.Config) {
		c.StorageVersionPending = func(_ context.Context, r schema.GroupResource, _ bool) (error, bool) {
			switch r.Resource {
			case "pods", "leases", "storageversions":
				return errors.New("etcd is gone"), true
			}
			return nil, false
		}
	})
	for _, test := range []struct {
		method, path string
		wantRejected bool
	}{
		{method: "POST", path: "/api/v1/namespaces/a/pods", wantRejected: true},
		{method: "PUT", path: "/api/v1/namespaces/a/pods/p/status", wantRejected: true},
		{method: "DELETE", path: "/api/v1/namespaces/a/pods", wantRejected: true},
		{method: "GET", path: "/api/v1/namespaces/a/pods"},
		{method: "GET", path: "/api/v1/pods?watch=1"},
		{method: "POST", path: "/api/v1/namespaces/a/configmaps"},
		{method: "PUT", path: "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/l"},
		{method: "PUT", path: "/apis/coordination.k8s.io/v1/namespaces/a/leases/l", wantRejected: true},
		{method: "PUT", path: "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions/core.pods"},
		{method: "POST", path: "/apis/example.com/v1/storageversions", wantRejected: true},
		{method: "PUT", path: "/apis/internal.apiserver.k8s.io/v1alpha1/leases/l", wantRejected: true},
		{method: "PUT", path: "/apis/example.com/v1/namespaces/kube-system/leases/l", wantRejected: true},
		{method: "PUT", path: "/apis/coordination.k8s.io/v1/namespaces/kube-system/pods/l", wantRejected: true},
		{method: "POST", path: "/version"},
	} {
		response := httptest.NewRecorder()
		handler.ServeHTTP(response, newRequest(test.method, test.path))
		if (response.Code == http.StatusServiceUnavailable) != test.wantRejected {
			t.Errorf("%s %s: got status %d: %s, want 503: %t", test.method, test.path, response.Code, response.Body, test.wantRejected)
		}
		if test.wantRejected &&
			(!strings.Contains(response.Body.String(), "wait for storage version registration to complete for resource: ") ||
				!strings.Contains(response.Body.String(), ", last seen error: etcd is gone")) {
			t.Errorf("%s %s: got body %s, want the resource and the last error", test.method, test.path, response.Body)
		}
	}
}
