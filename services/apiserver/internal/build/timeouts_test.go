package build

import "testing"

// TestRequestTimeoutIsReported checks that a request gets a timeout error wherever its deadline
// passes.
func TestRequestTimeoutIsReported(t *testing.T) {
	t.Parallel()
	api := sharedServer(t)
	for path, body := range map[string]string{
		"/api/v1/namespaces/default/services":   `{"metadata":{"name":"s"},"spec":{"ports":[{"port":80}]}}`,
		"/api/v1/namespaces/default/configmaps": configMap("c"),
		"/api/v1/namespaces/absent/configmaps":  configMap("c"),
	} {
		if response := api.send("POST", path+"?timeout=1ns", body); response.code != 504 {
			t.Errorf("%s: got status %d: %s, want status 504", path, response.code, response.body)
		}
	}
}
