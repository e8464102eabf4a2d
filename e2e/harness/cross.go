package harness

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// EverythingFor returns the path of the binary with all services, built for an architecture.
func EverythingFor(t testing.TB, arch string) string {
	t.Helper()
	dir := filepath.Join(Project(t), "bin", "e2e")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	name := string(Everything) + "-" + arch
	unlock, err := lockFile(filepath.Join(dir, "."+name+".lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	path := filepath.Join(dir, name)
	cmd := exec.Command("go", "build", "-o", path, "-ldflags=-s -w", "./cmd/binnacle")
	cmd.Dir, cmd.Env = Project(t), append(os.Environ(), "GOARCH="+arch, "CGO_ENABLED=0") // as in releases
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build binnacle for %s: %v\n%s", arch, err, out)
	}
	return path
}
