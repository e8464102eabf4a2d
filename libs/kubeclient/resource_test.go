package kubeclient_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"binnacle/libs/kubeclient"
)

// TestResourceMethodsSendTheirRequests checks the requests of each method, and that responses are
// decoded.
func TestResourceMethodsSendTheirRequests(t *testing.T) {
	var request, body string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		data, _ := io.ReadAll(r.Body)
		request, body = r.Method+" "+r.URL.RequestURI(), string(data)
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.URL.Query().Get("watch") != "":
			_, _ = io.WriteString(w, `{"type":"ADDED","object":{"kind":"Secret","apiVersion":"v1","metadata":{"name":"x"}}}`)
		case r.Method == http.MethodGet && r.URL.Query().Get("limit") != "":
			_ = json.NewEncoder(w).Encode(corev1.SecretList{
				TypeMeta: metav1.TypeMeta{Kind: "SecretList", APIVersion: "v1"},
				Items:    make([]corev1.Secret, 2),
			})
		case r.URL.Path == "/apis/rbac.authorization.k8s.io/v1/clusterroles/x":
			_, _ = io.WriteString(w, `{"kind":"ClusterRole","apiVersion":"rbac.authorization.k8s.io/v1","metadata":{"name":"x"}}`)
		case r.Method == http.MethodGet:
			status := apierrors.NewNotFound(corev1.Resource("secrets"), "x").Status()
			status.Kind, status.APIVersion = "Status", "v1"
			w.WriteHeader(http.StatusNotFound)
			_ = json.NewEncoder(w).Encode(status)
		default:
			_, _ = io.WriteString(w, `{"kind":"Secret","apiVersion":"v1","metadata":{"name":"x"}}`)
		}
	}))
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	client, err := kubeclient.NewClient(&rest.Config{Host: server.URL, QPS: -1}, corev1.AddToScheme, rbacv1.AddToScheme)
	if err != nil {
		t.Fatal(err)
	}
	secrets, err := kubeclient.NewResource[corev1.Secret, corev1.SecretList](client,
		corev1.SchemeGroupVersion.WithResource("secrets"), "ns")
	if err != nil {
		t.Fatal(err)
	}
	roles, err := kubeclient.NewResource[rbacv1.ClusterRole, rbacv1.ClusterRoleList](client,
		rbacv1.SchemeGroupVersion.WithResource("clusterroles"), "")
	if err != nil {
		t.Fatal(err)
	}
	ctx, secret := t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "x"}}
	isNamedX := func(s *corev1.Secret, err error) (bool, error) { return err == nil && s.Name == "x", err }
	for _, test := range []struct {
		name, want string
		call       func() (bool, error)
	}{
		{name: "get", want: "GET /api/v1/namespaces/ns/secrets/x", call: func() (bool, error) {
			_, err := secrets.Get(ctx, "x", metav1.GetOptions{})
			return apierrors.IsNotFound(err), err
		}},
		{
			name: "get without a namespace",
			want: "GET /apis/rbac.authorization.k8s.io/v1/clusterroles/x",
			call: func() (bool, error) {
				r, err := roles.Get(ctx, "x", metav1.GetOptions{})
				return err == nil && r.Name == "x", err
			},
		},
		{name: "list", want: "GET /api/v1/namespaces/ns/secrets?fieldSelector=type%3Da&limit=5", call: func() (bool, error) {
			l, err := secrets.List(ctx, metav1.ListOptions{Limit: 5, FieldSelector: "type=a"})
			return err == nil && len(l.Items) == 2, err
		}},
		{name: "watch", want: "GET /api/v1/namespaces/ns/secrets?resourceVersion=7&watch=true", call: func() (bool, error) {
			w, err := secrets.Watch(ctx, metav1.ListOptions{ResourceVersion: "7"})
			if err != nil {
				return false, err
			}
			defer w.Stop()
			return (<-w.ResultChan()).Object.(*corev1.Secret).Name == "x", nil
		}},
		{name: "create", want: "POST /api/v1/namespaces/ns/secrets?dryRun=All", call: func() (bool, error) {
			return isNamedX(secrets.Create(ctx, secret, metav1.CreateOptions{DryRun: []string{"All"}}))
		}},
		{name: "update", want: "PUT /api/v1/namespaces/ns/secrets/x", call: func() (bool, error) {
			return isNamedX(secrets.Update(ctx, secret, metav1.UpdateOptions{}))
		}},
		{name: "update of the status", want: "PUT /api/v1/namespaces/ns/secrets/x/status?dryRun=All", call: func() (bool, error) {
			return isNamedX(secrets.UpdateStatus(ctx, secret, metav1.UpdateOptions{DryRun: []string{"All"}}))
		}},
		{name: "update of a subresource", want: "PUT /api/v1/namespaces/ns/secrets/x/finalize", call: func() (bool, error) {
			return isNamedX(secrets.UpdateSubresource(ctx, secret, "finalize", metav1.UpdateOptions{}))
		}},
		{name: "create in another namespace", want: "POST /api/v1/namespaces/other/secrets", call: func() (bool, error) {
			return isNamedX(secrets.Namespaced()("other").Create(ctx, secret, metav1.CreateOptions{}))
		}},
		{name: "patch", want: "PATCH /api/v1/namespaces/ns/secrets/x/status?fieldManager=m", call: func() (bool, error) {
			return isNamedX(secrets.Patch(ctx, "x", types.MergePatchType, []byte(`{}`),
				metav1.PatchOptions{FieldManager: "m"}, "status"))
		}},
		{name: "delete", want: "DELETE /api/v1/namespaces/ns/secrets/x", call: func() (bool, error) {
			err := secrets.Delete(ctx, "x", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: new(types.UID("u"))}})
			return err == nil && json.Valid([]byte(body)), err
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			ok, err := test.call()
			if !ok || request != test.want {
				t.Errorf("sent %s, want %s; error %v", request, test.want, err)
			}
		})
	}
}
