package mirror_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"binnacle/e2e/conformance/mirror"
)

// TestWriteReplacesFunctions lays out modules that declare the replaced functions, and another
// package.
func TestWriteReplacesFunctions(t *testing.T) {
	cache := t.TempDir()
	for path, text := range map[string]string{
		"k8s.io/kubernetes/go.mod":                                               "module k8s.io/kubernetes\n",
		"k8s.io/kubernetes/cmd/kube-apiserver/app/testing/testserver.go":         "package testing\n\nfunc StartTestServer() {}\n",
		"k8s.io/kubernetes/cmd/kube-apiserver/app/server.go":                     "package app\n",
		"k8s.io/kubernetes/cmd/kube-apiserver/app/options/options.go":            "package options\n",
		"k8s.io/kubernetes/test/integration/framework/test_server.go":            "package framework\n\nfunc StartTestServer(x int) {}\n",
		"k8s.io/kubernetes/test/integration/etcd/server.go":                      "package etcd\n\nfunc StartRealAPIServerOrDie() {}\n",
		"k8s.io/apiextensions-apiserver/pkg/cmd/server/testing/testserver.go":    "package testing\n\nfunc StartTestServer() {}\n",
		"k8s.io/apiextensions-apiserver/test/integration/fixtures/server.go":     "package fixtures\n\nfunc StartDefaultServerWithConfigAccess() {}\n",
		"k8s.io/apiextensions-apiserver/test/integration/fixtures/resources.txt": "x",
	} {
		at := filepath.Join(cache, path)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	dir := filepath.Join(t.TempDir(), "mirror")
	modules, err := mirror.Write(dir, func(module string) (string, error) { return filepath.Join(cache, module), nil })
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"cmd/kube-apiserver/app/testing/testserver.go":    "func inProcessStartTestServer()",
		"cmd/kube-apiserver/app/testing/binnacle_shim.go": "func StartTestServer(",
		"cmd/kube-apiserver/app/server.go":                "package app",
		"cmd/kube-apiserver/app/options/options.go":       "package options",
		"test/integration/etcd/server.go":                 "func inProcessStartRealAPIServerOrDie()",
		"go.mod":                                          "module k8s.io/kubernetes",
	} {
		text, err := os.ReadFile(filepath.Join(modules["k8s.io/kubernetes"], path))
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s: got %q, %v, want %q", path, text, err, want)
		}
	}
	original, err := os.ReadFile(filepath.Join(cache, "k8s.io/kubernetes/test/integration/etcd/server.go"))
	if err != nil || strings.Contains(string(original), "inProcess") {
		t.Errorf("the original was changed: got %q, %v", original, err)
	}
}
