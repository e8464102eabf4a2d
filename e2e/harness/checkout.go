package harness

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// Checkout creates a worktree of a revision and returns its folder and the hash of the commit. The
// worktree is removed with the test. It returns "" twice if the repository has no such commit.
func Checkout(t testing.TB, revision string) (dir, commit string) {
	t.Helper()
	commit, err := git("rev-parse", "--verify", "--quiet", revision+"^{commit}")
	if err != nil {
		return "", ""
	}
	dir = filepath.Join(t.TempDir(), "checkout")
	if out, err := git("worktree", "add", "--detach", dir, commit); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Cleanup(func() {
		if out, err := git("worktree", "remove", "--force", dir); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	})
	return dir, commit
}

// git runs git in the repository of the project and returns its output without surrounding space.
func git(args ...string) (string, error) {
	module, err := moduleDir()
	if err != nil {
		return "", err
	}
	out, err := exec.Command("git", append([]string{"-C", filepath.Dir(module)}, args...)...).CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// buildMutex serializes the builds of other commits.
var buildMutex sync.Mutex

// BinaryOf returns the path of a service as of a commit. Each is built once.
func BinaryOf(t testing.TB, revision string, program Program) string {
	t.Helper()
	buildMutex.Lock()
	defer buildMutex.Unlock()
	commit, err := git("rev-parse", "--verify", "--quiet", revision+"^{commit}")
	if err != nil {
		t.Fatalf("the repository has no commit %s", revision)
	}
	path := filepath.Join(Project(t), "bin", "e2e", fmt.Sprintf("%s-%.12s", program, commit))
	if _, err := os.Stat(path); err == nil {
		return path
	}
	dir, _ := Checkout(t, commit)
	cmd := exec.Command("go", "build", "-o", path, "-ldflags=-s -w", "./services/"+string(program))
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %s of %s: %v\n%s", program, commit, err, out)
	}
	return path
}
