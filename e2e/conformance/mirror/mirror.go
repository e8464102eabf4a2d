// Package mirror changes the packages of k8s.io/kubernetes that start an API server in their own
// process, so that they start the binnacle API server instead. It lays out a folder for each module
// with links to the module cache. In these packages the function that starts a server is renamed,
// and a file below testdata adds another one with its name. The repository contains no file of
// Kubernetes.
package mirror

import (
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

//go:embed testdata
var files embed.FS

// replaced is a function that is replaced by one in another file.
type replaced struct {
	module, file, function, by string
}

var all = []replaced{
	{"k8s.io/kubernetes", "cmd/kube-apiserver/app/testing/testserver.go", "StartTestServer", "kubeapiserver.go"},
	{"k8s.io/kubernetes", "test/integration/framework/test_server.go", "StartTestServer", "framework.go"},
	{"k8s.io/kubernetes", "test/integration/etcd/server.go", "StartRealAPIServerOrDie", "etcd.go"},
	{"k8s.io/apiextensions-apiserver", "pkg/cmd/server/testing/testserver.go", "StartTestServer", "apiextensions.go"},
	{"k8s.io/apiextensions-apiserver", "test/integration/fixtures/server.go", "StartDefaultServerWithConfigAccess",
		"fixtures.go"},
}

// Write lays out the modules below dir and returns the folder of each. root returns the folder of a
// module in the module cache.
func Write(dir string, root func(module string) (string, error)) (map[string]string, error) {
	if err := os.RemoveAll(dir); err != nil {
		return nil, err
	}
	out := map[string]string{}
	for _, r := range all {
		from, err := root(r.module)
		if err != nil {
			return nil, err
		}
		to := filepath.Join(dir, filepath.FromSlash(r.module))
		out[r.module] = to
		if err := open(from, to, filepath.Dir(filepath.FromSlash(r.file))); err != nil {
			return nil, err
		}
		if err := r.replace(to); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// open creates the folders of to along the path at, and links or copies their contents from from.
func open(from, to, at string) error {
	if err := fill(from, to); err != nil || at == "." {
		return err
	}
	first, rest, _ := strings.Cut(at, string(filepath.Separator))
	if rest == "" {
		rest = "."
	}
	return open(filepath.Join(from, first), filepath.Join(to, first), rest)
}

// fill creates a folder unless it exists, with links to folders and copies of files, because the go
// command does not embed linked files.
func fill(from, to string) error {
	if info, err := os.Lstat(to); err == nil {
		if info.IsDir() {
			return nil
		}
		if err := os.Remove(to); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	for _, e := range entries {
		source, target := filepath.Join(from, e.Name()), filepath.Join(to, e.Name())
		if e.IsDir() {
			err = os.Symlink(source, target)
		} else {
			err = duplicate(source, target)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func duplicate(from, to string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, text, 0o600)
}

// replace renames the function in a module's folder and adds the other one.
func (r replaced) replace(module string) error {
	path := filepath.Join(module, filepath.FromSlash(r.file))
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	declaration := "\nfunc " + r.function + "("
	if strings.Count(string(text), declaration) != 1 {
		return fmt.Errorf("%s does not declare %s exactly once", path, r.function)
	}
	renamed := strings.Replace(string(text), declaration, "\nfunc inProcess"+r.function+"(", 1)
	if err := os.WriteFile(path, []byte(renamed), 0o600); err != nil {
		return err
	}
	ours, err := files.ReadFile("testdata/" + r.by)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(filepath.Dir(path), "binnacle_shim.go"), ours, 0o600)
}
