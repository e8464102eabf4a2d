package build

import "testing"

// TestEmptyListsInWriteResponses checks that the response to a write equals a later read.
func TestEmptyListsInWriteResponses(t *testing.T) {
	t.Parallel()
	a := start(t, nil)
	for _, c := range []struct{ path, body, in, field string }{
		{
			path:  "/apis/storage.k8s.io/v1/csinodes",
			body:  `{"metadata":{"name":"n"},"spec":{"drivers":[]}}`,
			in:    "spec",
			field: "drivers",
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
		made := a.want(201, "POST", c.path, c.body)
		read := a.want(200, "GET", c.path+"/n", "")
		for what, r := range map[string]answer{"created": made, "read": read} {
			o := r.object()
			if c.in != "" {
				o = o[c.in].(map[string]any)
			}
			if v, ok := o[c.field]; !ok || v != nil {
				t.Errorf("%s: %s shows %s as %v (%t), want null", c.path, what, c.field, v, ok)
			}
		}
	}
}
