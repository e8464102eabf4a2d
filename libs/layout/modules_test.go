package layout

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestModuleVersionsAgree compares the versions of modules that several go.mod files require. With
// different versions the packages of a module, and all that import them, are compiled twice.
func TestModuleVersionsAgree(t *testing.T) {
	files := []string{"go.mod", "e2e/go.mod", "e2e/sampleapiserver/go.mod", "e2e/helm/go.mod"}
	requiredBy, version := map[string]string{}, map[string]string{} // by module: the file that requires it, and the version
	for i, file := range files {
		shared := 0
		for path, current := range requirements(t, file) {
			earlier, seen := version[path]
			switch {
			case !seen:
				requiredBy[path], version[path] = file, current
			case earlier != current:
				t.Errorf("%s: %s in %s, and %s in %s; take the newer in both", path, earlier, requiredBy[path], current, file)
			default:
				shared++
			}
		}
		if i > 0 && shared < 30 {
			t.Errorf("%s shares %d modules with the other files, want at least 30", file, shared)
		}
	}
}

// conformance is the only folder that may import modules of kube-apiserver.
const conformance = "e2e/conformance"

// TestOnlyConformanceNamesKubernetes checks the imports of all files in all modules.
func TestOnlyConformanceNamesKubernetes(t *testing.T) {
	root := moduleRoot(t)
	files, imports := 0, 0
	err := filepath.WalkDir(root, func(path string, dirEntry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if dirEntry.IsDir() {
			if relative != "." && (strings.HasPrefix(dirEntry.Name(), ".") || relative == "bin" || relative == "dist") {
				return fs.SkipDir
			}
			return nil
		}
		for _, name := range namedModules(t, path) {
			imports++
			if !under(filepath.ToSlash(relative), conformance) {
				t.Errorf("%s names %s, which only %s may", relative, name, conformance)
			}
		}
		files++
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if files < 100 || imports == 0 {
		t.Errorf("read %d files with %d imports of Kubernetes, want at least 100 files and one import", files, imports)
	}
}

// namedModules returns the imports and requirements of k8s.io/kubernetes in a Go file or a go.mod.
func namedModules(t *testing.T, path string) (out []string) {
	t.Helper()
	const kubernetes = "k8s.io/kubernetes"
	switch {
	case filepath.Base(path) == "go.mod":
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, word := range strings.Fields(string(data)) {
			if word == kubernetes {
				out = append(out, word)
			}
		}
	case filepath.Ext(path) == ".go":
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range f.Imports {
			if name := strings.Trim(i.Path.Value, `"`); under(name, kubernetes) {
				out = append(out, name)
			}
		}
	}
	return out
}

// requirements returns the versions of the modules that a go.mod requires.
func requirements(t *testing.T, file string) map[string]string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(moduleRoot(t), file))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for line := range strings.Lines(string(data)) {
		words := strings.Fields(strings.TrimPrefix(line, "require"))
		if len(words) >= 2 && strings.HasPrefix(words[1], "v") {
			out[words[0]] = words[1]
		}
	}
	return out
}
