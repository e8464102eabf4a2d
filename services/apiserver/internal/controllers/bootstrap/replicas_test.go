package bootstrap

import "testing"

// TestIdentityEqualsKubernetes compares with the identity of kube-apiserver on the host node-1.
func TestIdentityEqualsKubernetes(t *testing.T) {
	if got, want := Identity("node-1"), "apiserver-lgabes5ywnaqeagh5dny4zlzs4"; got != want {
		t.Errorf("Identity(node-1) = %s, want %s", got, want)
	}
}
