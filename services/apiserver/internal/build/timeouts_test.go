package build

import "testing"

// TestRequestTimeoutIsReported checks that a request gets a timeout error wherever its deadline
// passes.
func TestRequestTimeoutIsReported(t *testing.T) {
	t.Parallel()
	a := shared(t)
	for path, body := range map[string]string{
		"/api/v1/namespaces/default/services":   `{"metadata":{"name":"s"},"spec":{"ports":[{"port":80}]}}`,
		"/api/v1/namespaces/default/configmaps": configMap("c"),
		"/api/v1/namespaces/absent/configmaps":  configMap("c"),
	} {
		if r := a.send("POST", path+"?timeout=1ns", body); r.code != 504 {
			t.Errorf("%s: got status %d: %s, want status 504", path, r.code, r.body)
		}
	}
}
