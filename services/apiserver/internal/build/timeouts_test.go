package build

import "testing"

// TestTheEndOfItsTimeIsNoErrorOfTheServer: wherever a request notices that its time is
// over, it is told that.
func TestTheEndOfItsTimeIsNoErrorOfTheServer(t *testing.T) {
	t.Parallel()
	a := shared(t)
	for path, body := range map[string]string{
		"/api/v1/namespaces/default/services":   `{"metadata":{"name":"s"},"spec":{"ports":[{"port":80}]}}`,
		"/api/v1/namespaces/default/configmaps": configMap("c"),
		"/api/v1/namespaces/absent/configmaps":  configMap("c"),
	} {
		if r := a.send("POST", path+"?timeout=1ns", body); r.code != 504 {
			t.Errorf("%s: %d %s", path, r.code, r.body)
		}
	}
}
