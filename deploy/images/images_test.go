package main

import (
	"bytes"
	"encoding/json"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// binary builds a minimal program.
func binary(t *testing.T, dir, name string) string {
	t.Helper()
	source := filepath.Join(t.TempDir(), "main.go")
	if err := os.WriteFile(source, []byte("package main\n\nfunc main() {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, name)
	cmd := exec.Command("go", "build", "-o", path, source)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

// TestContextHoldsBinariesAndBills checks the files of a build context and the printed size.
func TestContextHoldsBinariesAndBills(t *testing.T) {
	bin, out := t.TempDir(), t.TempDir()
	binary(t, bin, "tokencleaner")
	ca := filepath.Join(bin, "ca.crt")
	if err := os.WriteFile(ca, []byte("a bundle"), 0o600); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	settings := config{
		BinDir:        bin,
		Out:           out,
		Builder:       noBuilder,
		CABundle:      ca,
		Services:      []string{"tokencleaner"},
		Dockerfile:    "Dockerfile",
		Architectures: []string{runtime.GOARCH},
		log:           &log,
	}
	if err := settings.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{"ca-certificates.crt", runtime.GOARCH + "/tokencleaner"} {
		if _, err := os.Stat(filepath.Join(out, "context", "tokencleaner", f)); err != nil {
			t.Error(err)
		}
	}
	if !strings.Contains(log.String(), "tokencleaner for "+runtime.GOARCH+": ") {
		t.Errorf("got log %s, want the size", &log)
	}
	recipe, err := os.ReadFile(filepath.Join(out, "context", "tokencleaner", "Dockerfile"))
	if err != nil || strings.Contains(string(recipe), "@") || !strings.Contains(string(recipe),
		`ENTRYPOINT ["/tokencleaner"]`) || !strings.Contains(string(recipe), "EXPOSE 6446") {
		t.Errorf("got Dockerfile %s, %v, want the entrypoint /tokencleaner and port 6446, no placeholder", recipe, err)
	}
	data, err := os.ReadFile(filepath.Join(out, "tokencleaner-"+runtime.GOARCH+".cdx.json"))
	if err != nil {
		t.Fatal(err)
	}
	var bill billOfMaterials
	if err := json.Unmarshal(data, &bill); err != nil {
		t.Fatal(err)
	}
	if bill.Format != "CycloneDX" || bill.Metadata.Component.Name != "tokencleaner" || len(bill.Components) == 0 ||
		bill.Components[0].PURL != "pkg:golang/std@"+runtime.Version() {
		t.Errorf("got bill %+v, want CycloneDX of tokencleaner, the standard library first", bill)
	}
}

// TestMeasureFilesCompresses checks the size of files that compress well and of files that do not.
func TestMeasureFilesCompresses(t *testing.T) {
	dir := t.TempDir()
	noise, zeros := filepath.Join(dir, "noise"), filepath.Join(dir, "zeros")
	random := make([]byte, 1<<20)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(random)
	for path, data := range map[string][]byte{noise: random, zeros: make([]byte, 3<<20)} {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	size, err := measureFiles(noise, zeros)
	if err != nil {
		t.Fatal(err)
	}
	if size.unpacked != 4<<20 || size.packed < 1<<20 || size.packed > 5<<18 {
		t.Errorf("1 MiB of noise and 3 MiB of zeros: got %s, want 4 MiB unpacked, 1 to 1.25 MiB packed", size)
	}
	if _, err := measureFiles(filepath.Join(dir, "none")); err == nil {
		t.Error("measureFiles() of a missing file = nil, want an error")
	}
}

// TestBillListsModules checks that a bill of materials lists the modules of a binary.
func TestBillListsModules(t *testing.T) {
	self, err := os.Executable() // has dependencies
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "bill")
	if err := writeBill(self, "x", path); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(data), `"purl": "pkg:golang/github.com/spf13/pflag@v`) {
		t.Errorf("got bill %s, want pflag in it", data)
	}
}

// TestCheckStaticRejectsUnsuitableBinaries checks the errors for scripts and for binaries of other
// architectures.
func TestCheckStaticRejectsUnsuitableBinaries(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "text")
	if err := os.WriteFile(text, []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	static := binary(t, dir, "static")
	tests := []struct{ name, path, arch, want string }{
		{name: "static", path: static, arch: runtime.GOARCH, want: ""},
		{name: "a script", path: text, arch: runtime.GOARCH, want: "not a Linux binary"},
		{name: "for another architecture", path: static, arch: "s390x", want: "not for s390x"},
		{name: "for an unknown architecture", path: static, arch: "vax", want: "not for vax"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := checkStatic(tt.path, tt.arch)
			if (tt.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

// TestUnknownProgramFails checks that the error lists the known programs.
func TestUnknownProgramFails(t *testing.T) {
	settings := config{
		Out:           t.TempDir(),
		Builder:       noBuilder,
		Services:      []string{"kubelet"},
		Dockerfile:    "Dockerfile",
		Architectures: []string{runtime.GOARCH},
		log:           io.Discard,
	}
	if err := settings.run(t.Context()); err == nil || !strings.Contains(err.Error(), `"kubelet" is none of apiserver, `) {
		t.Errorf("got error %v, want one that lists the known programs", err)
	}
}

// TestUnknownBuilderFails checks that the error lists the known builders.
func TestUnknownBuilderFails(t *testing.T) {
	if _, err := findBuilder(t.Context(), "kaniko"); err == nil || !strings.Contains(err.Error(),
		"not docker, podman, buildah or none") {
		t.Errorf("got %v, want the error: not docker, podman, buildah or none", err)
	}
}
