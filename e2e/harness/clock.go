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

// A clock is wrong in one process alone: its program is built with a package time that
// adds to the wall clock what a file says, which is memory of the program. What measures
// how long things take, the monotonic clock, is right. Nothing outside the programs could
// lie to them, which ask a page of the kernel's for the time and not the kernel.

// clockEnv names the file, to programs that WithClock runs.
const clockEnv = "BINNACLE_CLOCK"

// Clock is the wall clock of processes.
type Clock struct {
	t    testing.TB
	path string
}

// NewClock makes a clock that is right.
func NewClock(t testing.TB) *Clock {
	t.Helper()
	c := &Clock{t: t, path: filepath.Join(t.TempDir(), "clock")}
	c.Set(0)
	return c
}

// Set lets the clock jump so that it is ahead by whole seconds, or behind.
func (c *Clock) Set(ahead time.Duration) {
	c.t.Helper()
	f, err := os.OpenFile(c.path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		c.t.Fatal(err)
	}
	defer f.Close()
	seconds := binary.NativeEndian.AppendUint64(nil, uint64(ahead/time.Second))
	if _, err := f.WriteAt(seconds, 0); err != nil {
		c.t.Fatal(err)
	}
}

// WithClock runs the server by a clock of its own.
func WithClock(c *Clock) Option {
	return func(s *Server) {
		s.path = shiftable(s.t, APIServer)
		s.env = append(s.env, clockEnv+"="+c.path)
	}
}

//go:embed testdata/shift.go.txt
var shiftSource []byte

// What time.Now asks, and what it asks then.
const (
	asksSystem = "\tsec, nsec, mono := runtimeNow()\n"
	asksShift  = asksSystem + "\tsec += wrongBy()\n"
)

// building guards what is built with another package time.
var building sync.Mutex

// shiftable is a service whose clock can be wrong. Everything in it is compiled for that,
// as everything may hold parts of package time; the go command keeps what it compiled.
func shiftable(t testing.TB, p Program) string {
	t.Helper()
	building.Lock()
	defer building.Unlock()
	dir := filepath.Join(Project(t), "bin", "e2e")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, string(p)+"-clock")
	unlock, err := lockFile(filepath.Join(dir, "."+string(p)+"-clock.lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	overlay, err := shiftOverlay(Project(t), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	out, err := goCommand(Project(t), "build", "-overlay="+overlay, "-o", path, "-ldflags=-s -w", "./services/"+string(p)).CombinedOutput()
	if err != nil {
		t.Fatalf("build %s with another clock: %v\n%s", p, err, out)
	}
	return path
}

func goCommand(project string, args ...string) *exec.Cmd {
	cmd := exec.Command("go", args...)
	cmd.Dir, cmd.Env = project, append(os.Environ(), "CGO_ENABLED=0")
	return cmd
}

// shiftOverlay writes into dir what the go command is to read in place of package time,
// and returns the name of its list.
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
	if strings.Count(string(original), asksSystem) != 1 {
		return "", fmt.Errorf("%s asks the system for the time in another way than %q", folder, asksSystem)
	}
	list := struct{ Replace map[string]string }{map[string]string{}}
	for name, source := range map[string][]byte{
		"time.go":  []byte(strings.Replace(string(original), asksSystem, asksShift, 1)),
		"shift.go": shiftSource,
	} {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, source, 0o600); err != nil {
			return "", err
		}
		list.Replace[filepath.Join(folder, name)] = file
	}
	b, err := json.Marshal(list)
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, b, 0o600)
}
