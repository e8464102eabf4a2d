package layout

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestModulesAgree: what both the product and its end-to-end tests require they require in one
// version. Of another one everything that is built on it would be compiled and looked at twice: a
// version of protobuf alone makes that 600 packages.
func TestModulesAgree(t *testing.T) {
	ours, theirs := requirements(t, "go.mod"), requirements(t, "e2e/go.mod")
	shared := 0
	for path, version := range ours {
		other, both := theirs[path]
		if both {
			shared++
		}
		if both && other != version {
			t.Errorf("%s: %s in go.mod, and %s in e2e/go.mod; take the newer in both", path, version, other)
		}
	}
	if shared < 50 {
		t.Errorf("only %d shared modules were seen", shared)
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
