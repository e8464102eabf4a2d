package build

import "testing"

// TestEmptyListsAreNullInResponses checks that an empty list of an object is null in the response
// to its creation and in a later read, as in Kubernetes.
func TestEmptyListsAreNullInResponses(t *testing.T) {
	t.Parallel()
	api := startServer(t, nil)
	for _, test := range []struct{ path, body, parent, field string }{
		{
			path:   "/apis/storage.k8s.io/v1/csinodes",
			body:   `{"metadata":{"name":"n"},"spec":{"drivers":[]}}`,
			parent: "spec",
			field:  "drivers",
		},
		{
			path:  "/apis/rbac.authorization.k8s.io/v1/clusterroles",
			body:  `{"metadata":{"name":"n"},"rules":[]}`,
			field: "rules",
		},
		{
			path:  "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices",
			body:  `{"metadata":{"name":"n"},"addressType":"IPv4","endpoints":[],"ports":[]}`,
			field: "endpoints",
		},
	} {
		created := api.mustSend(201, "POST", test.path, test.body)
		read := api.mustSend(200, "GET", test.path+"/n", "")
		for name, r := range map[string]apiResponse{"created": created, "read": read} {
			o := r.object()
			if test.parent != "" {
				o = o[test.parent].(map[string]any)
			}
			if v, ok := o[test.field]; !ok || v != nil {
				t.Errorf("%s: %s object has %s = %v (present: %t), want null (present: true)", test.path, name, test.field, v, ok)
			}
		}
	}
}
