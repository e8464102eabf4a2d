package main

import (
	"bufio"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestServicesLetTheLinkerRemoveMethods checks that no service calls methods by a name or number that
// is not constant. One such function keeps all exported methods of all types; see
// docs/adr/0024-small-clients.md.
func TestServicesLetTheLinkerRemoveMethods(t *testing.T) {
	if testing.Short() {
		t.Skip("links every service")
	}
	for _, service := range suiteServices() {
		cmd := exec.Command("go", "build", "-tags="+buildTags, "-ldflags=-s -w -dumpdep",
			"-o", filepath.Join(t.TempDir(), service), "./services/"+service)
		cmd.Dir = filepath.Join("..", "..")
		dependencies, err := cmd.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := 0
		last := "" // line before the end, which has an error of the build
		scanner := bufio.NewScanner(dependencies)
		scanner.Buffer(nil, 1<<20)
		for ; scanner.Scan(); lines++ {
			last = scanner.Text()
			_, callee, _ := strings.Cut(last, " -> ")
			if strings.Contains(callee, "ReflectMethod>") {
				t.Errorf("%s keeps all methods: %s", service, last)
			}
		}
		if err := cmd.Wait(); err != nil || lines < 1000 {
			t.Fatalf("build %s: %v after %d lines: %s", service, err, lines, last)
		}
	}
}
