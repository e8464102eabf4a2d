package layout

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestModulesAgree compares the versions of modules that several go.mod files require. Packages
// of another version, and all that import them, would be compiled again: a version of protobuf
// alone makes that 600 packages.
func TestModulesAgree(t *testing.T) {
	files := []string{"go.mod", "e2e/go.mod", "e2e/sampleapiserver/go.mod", "e2e/helm/go.mod"}
	first, version := map[string]string{}, map[string]string{} // by module: the file that names it, and how
	for i, file := range files {
		shared := 0
		for path, v := range requirements(t, file) {
			switch was, seen := version[path]; {
			case !seen:
				first[path], version[path] = file, v
			case was != v:
				t.Errorf("%s: %s in %s, and %s in %s; take the newer in both", path, was, first[path], v, file)
			default:
				shared++
			}
		}
		if i > 0 && shared < 30 {
			t.Errorf("%s shares only %d modules with the others", file, shared)
		}
	}
}

// requirements are the versions of the modules that a go.mod names.
func requirements(t *testing.T, file string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(moduleRoot(t), file))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(strings.TrimPrefix(line, "require"))
		if len(words) >= 2 && strings.HasPrefix(words[1], "v") {
			out[words[0]] = words[1]
		}
	}
	return out
}
