// Package overlay makes the packages of k8s.io/kubernetes that start an API server in their own
// process start the binnacle API server instead. The go command reads their files through an
// overlay: each function that starts a server is renamed, and a file below testdata adds another
// one of its name. No file of the reference is stored.
package overlay

import (
	"embed"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

//go:embed testdata
var files embed.FS

// replaced is a function that another file declares.
type replaced struct {
	module, file, function, by string
}

var all = []replaced{
	{"k8s.io/kubernetes", "cmd/kube-apiserver/app/testing/testserver.go", "StartTestServer", "kubeapiserver.go"},
	{"k8s.io/kubernetes", "test/integration/framework/test_server.go", "StartTestServer", "framework.go"},
	{"k8s.io/kubernetes", "test/integration/etcd/server.go", "StartRealAPIServerOrDie", "etcd.go"},
	{"k8s.io/apiextensions-apiserver", "pkg/cmd/server/testing/testserver.go", "StartTestServer", "apiextensions.go"},
	{"k8s.io/apiextensions-apiserver", "test/integration/fixtures/server.go", "StartDefaultServerWithConfigAccess", "fixtures.go"},
}

// Write writes an overlay for the go command to dir, and returns its path. root returns the folder of
// a module.
func Write(dir string, root func(module string) (string, error)) (string, error) {
	replace := map[string]string{}
	for i, r := range all {
		at, err := root(r.module)
		if err != nil {
			return "", err
		}
		original := filepath.Join(at, filepath.FromSlash(r.file))
		text, err := os.ReadFile(original)
		if err != nil {
			return "", err
		}
		declaration := "\nfunc " + r.function + "("
		if strings.Count(string(text), declaration) != 1 {
			return "", fmt.Errorf("%s does not declare %s", original, r.function)
		}
		renamed := filepath.Join(dir, fmt.Sprintf("%d-renamed.go", i))
		if err := os.WriteFile(renamed, []byte(strings.Replace(string(text), declaration, "\nfunc inProcess"+r.function+"(", 1)), 0o600); err != nil {
			return "", err
		}
		ours, err := files.ReadFile("testdata/" + r.by)
		if err != nil {
			return "", err
		}
		added := filepath.Join(dir, fmt.Sprintf("%d-added.go", i))
		if err := os.WriteFile(added, ours, 0o600); err != nil {
			return "", err
		}
		replace[original] = renamed
		replace[filepath.Join(filepath.Dir(original), "binnacle_shim.go")] = added
	}
	raw, err := json.MarshalIndent(map[string]any{"Replace": replace}, "", "  ")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, raw, 0o600)
}
