package scenarios

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"binnacle/e2e/harness"
)

// longEnv enables tests that take minutes.
const longEnv = "BINNACLE_LONG"

// TestControllerRuntimeSuites runs controller-runtime's own tests, from its module, with the API
// server.
func TestControllerRuntimeSuites(t *testing.T) {
	if os.Getenv(longEnv) == "" {
		t.Skip(longEnv + " is not set")
	}
	dir, modDir := assetFolder(t), t.TempDir()
	// The tests need other modules than this one. A copy has them in its go.mod.
	for _, name := range []string{"go.mod", "go.sum"} {
		raw, err := os.ReadFile(filepath.Join("..", name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(modDir, name), raw, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// The tests of client/apiutil download servers, which need more than a module proxy.
	const module = "sigs.k8s.io/controller-runtime/pkg/"
	for _, suite := range []string{
		"envtest", "client", "client/config", "cluster", "builder", "cache", "controller",
		"controller/controllerutil", "internal/controller", "internal/recorder", "manager", "source",
		"webhook", "webhook/admission", "webhook/authentication", "webhook/conversion",
	} {
		t.Run(suite, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-timeout=15m", "-mod=mod",
				"-modfile="+filepath.Join(modDir, "go.mod"), module+suite, "-args", "-ginkgo.no-color")
			cmd.Env = append(os.Environ(),
				"TEST_ASSET_KUBE_APISERVER="+filepath.Join(dir, "kube-apiserver"),
				"TEST_ASSET_ETCD="+filepath.Join(dir, "etcd"),
				"TEST_ASSET_KUBECTL="+filepath.Join(dir, "kubectl"))
			var out harness.Buffer
			cmd.Stdout, cmd.Stderr = &out, &out
			err := cmd.Run()
			text := out.String()
			t.Log(strings.Join(summary.FindAllString(text, -1), "\n"))
			if err != nil {
				t.Errorf("%v\n%s", err, strings.Join(failed.FindAllString(text, -1), "\n"))
			}
		})
	}
}

// Lines at the end of a Ginkgo suite.
var (
	summary = regexp.MustCompile(`(?m)^(Ran \d+ of .*|(FAIL|SUCCESS)! -- .*)$`)
	failed  = regexp.MustCompile(`(?m)^ *\[(FAIL|PANICKED!|TIMEDOUT)\].*\n.*$`)
)
