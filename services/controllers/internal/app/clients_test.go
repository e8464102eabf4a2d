package app

import (
	"net/http"
	"net/http/httptest"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// TestClientsAddressTheirResources checks the paths of the requests of each client.
func TestClientsAddressTheirResources(t *testing.T) {
	var path string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path = r.URL.Path
		w.WriteHeader(http.StatusForbidden)
	}))
	t.Cleanup(server.Close)
	clients, err := newClients(&rest.Config{Host: server.URL, QPS: 1000, Burst: 1000})
	if err != nil {
		t.Fatal(err)
	}
	ctx, options := t.Context(), metav1.ListOptions{}
	for want, send := range map[string]func() error{
		"/api": func() error { _, err := clients.discovery.Groups(t.Context()); return err },
		"/api/v1/namespaces": func() error {
			_, err := clients.allNamespaces.List(ctx, options)
			return err
		},
		"/api/v1/namespaces/a": func() error {
			_, err := clients.namespaces.Get(ctx, "a", metav1.GetOptions{})
			return err
		},
		"/api/v1/namespaces/a/pods": func() error {
			_, err := clients.namespacePods("a").List(ctx, options)
			return err
		},
		"/api/v1/pods": func() error { _, err := clients.quotas.Pods("").List(ctx, options); return err },
		"/apis/coordination.k8s.io/v1/namespaces/a/leases": func() error {
			_, err := clients.leases("a").List(ctx, options)
			return err
		},
		"/apis/batch/v1/jobs": func() error { _, err := clients.jobs("").List(ctx, options); return err },
		"/apis/certificates.k8s.io/v1/certificatesigningrequests": func() error {
			_, err := clients.requests.List(ctx, options)
			return err
		},
		"/api/v1/resourcequotas": func() error { _, err := clients.quotas.Quotas("").List(ctx, options); return err },
		"/api/v1/namespaces/a/resourcequotas/q/status": func() error {
			quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "q"}}
			_, err := clients.quotas.Status("a").UpdateStatus(ctx, quota, metav1.UpdateOptions{})
			return err
		},
		"/api/v1/namespaces/a/services": func() error {
			_, err := clients.quotas.Services("a").List(ctx, options)
			return err
		},
		"/api/v1/namespaces/a/persistentvolumeclaims": func() error {
			_, err := clients.quotas.VolumeClaims("a").List(ctx, options)
			return err
		},
		"/apis/resource.k8s.io/v1beta1/namespaces/a/resourceclaims": func() error {
			_, err := clients.quotas.DeviceClaimsV1beta1("a").List(ctx, options)
			return err
		},
		"/apis/resource.k8s.io/v1beta2/namespaces/a/resourceclaims": func() error {
			_, err := clients.quotas.DeviceClaimsV1beta2("a").List(ctx, options)
			return err
		},
		"/apis/rbac.authorization.k8s.io/v1/clusterroles": func() error {
			_, err := clients.roles.List(ctx, options)
			return err
		},
		"/api/v1/serviceaccounts": func() error { _, err := clients.accounts("").List(ctx, options); return err },
		"/api/v1/configmaps":      func() error { _, err := clients.configMaps("").List(ctx, options); return err },
		"/api/v1/namespaces/a/events": func() error {
			_, err := clients.events("a").Create(ctx, &corev1.Event{}, metav1.CreateOptions{})
			return err
		},
	} {
		if err := send(); err == nil || path != want {
			t.Errorf("sent a request to %s, want %s; error %v", path, want, err)
		}
	}
}
