package harness

import (
	_ "embed"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// A process can have a wrong clock. Its program is built with a package time that adds an offset
// from a memory-mapped file to the wall clock. The monotonic clock stays correct. The programs read
// the time from a page of the kernel without a system call, so the clock cannot be changed from
// outside.

// clockEnv names the file for programs that WithClock runs.
const clockEnv = "BINNACLE_CLOCK"

// Clock is the wall clock of some processes.
type Clock struct {
	t    testing.TB
	path string
}

// NewClock returns a clock without an offset.
func NewClock(t testing.TB) *Clock {
	t.Helper()
	c := &Clock{t: t, path: filepath.Join(t.TempDir(), "clock")}
	c.Set(0)
	return c
}

// Set makes the clock jump to an offset in whole seconds, positive or negative.
func (c *Clock) Set(ahead time.Duration) {
	c.t.Helper()
	file, err := os.OpenFile(c.path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		c.t.Fatal(err)
	}
	defer file.Close()
	seconds := binary.NativeEndian.AppendUint64(nil, uint64(ahead/time.Second))
	if _, err := file.WriteAt(seconds, 0); err != nil {
		c.t.Fatal(err)
	}
}

// WithClock makes the server use c as its wall clock.
func WithClock(clock *Clock) Option {
	return func(s *Server) {
		s.path = clockShiftableBinary(s.t, APIServer)
		s.env = append(s.env, clockEnv+"="+clock.path)
	}
}

//go:embed testdata/shift.go.txt
var shiftedClockSource []byte

// The statement of time.Now that reads the clock, and its replacement.
const (
	clockRead        = "\tsec, nsec, mono := runtimeNow()\n"
	shiftedClockRead = clockRead + "\tsec += wrongBy()\n"
)

// clockBuildMutex serializes builds with another package time.
var clockBuildMutex sync.Mutex

// clockShiftableBinary returns the path of a service whose clock can be shifted. All its packages
// are recompiled because package time may be inlined anywhere. The go command caches the result.
func clockShiftableBinary(t testing.TB, program Program) string {
	t.Helper()
	clockBuildMutex.Lock()
	defer clockBuildMutex.Unlock()
	dir := filepath.Join(Project(t), "bin", "e2e")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, string(program)+"-clock")
	unlock, err := lockFile(filepath.Join(dir, "."+string(program)+"-clock.lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	overlay, err := shiftOverlay(Project(t), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	out, err := goCommand(Project(t), "build", "-overlay="+overlay, "-o", path, "-ldflags=-s -w",
		"./services/"+string(program)).CombinedOutput()
	if err != nil {
		t.Fatalf("build %s with another clock: %v\n%s", program, err, out)
	}
	return path
}

// goCommand returns a go command that builds as releases do.
func goCommand(project string, args ...string) *exec.Cmd {
	cmd := exec.Command("go", args...)
	cmd.Dir, cmd.Env = project, append(os.Environ(), "CGO_ENABLED=0")
	return cmd
}

// shiftOverlay writes the replacements for files of package time into dir and returns the name of
// the overlay file.
func shiftOverlay(project, dir string) (string, error) {
	root, err := goCommand(project, "env", "GOROOT").Output()
	if err != nil {
		return "", fmt.Errorf("go env GOROOT: %w", err)
	}
	folder := filepath.Join(strings.TrimSpace(string(root)), "src", "time")
	original, err := os.ReadFile(filepath.Join(folder, "time.go"))
	if err != nil {
		return "", err
	}
	if strings.Count(string(original), clockRead) != 1 {
		return "", fmt.Errorf("%s does not contain %q exactly once", folder, clockRead)
	}
	replacements := struct{ Replace map[string]string }{Replace: map[string]string{}}
	for name, source := range map[string][]byte{
		"time.go":  []byte(strings.Replace(string(original), clockRead, shiftedClockRead, 1)),
		"shift.go": shiftedClockSource,
	} {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, source, 0o600); err != nil {
			return "", err
		}
		replacements.Replace[filepath.Join(folder, name)] = file
	}
	data, err := json.Marshal(replacements)
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, data, 0o600)
}
