package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"binnacle/libs/options"
	apiserver "binnacle/services/apiserver/program"
)

var update = flag.Bool("update", false, "write the flag reference")

// featureGates matches the list of feature gates, which fills half of a help text.
var featureGates = regexp.MustCompile(`(?s)(--feature-gates .*?)\s*Options are:.*?(\n      --)`)

// TestFlagReference: docs/user/flags.md holds the help text of each command.
func TestFlagReference(t *testing.T) {
	want := []byte("# Flags\n\nGenerated from `--help`. Run `go test ./cmd/binnacle -run TestFlagReference -update` after a change.\n" +
		"[configuration.md](configuration.md) explains configuration files and groups of flags. The lists of\n" +
		"feature gates are left out; `binnacle apiserver --help` prints them.\n")
	section := func(command string, help []byte) {
		want = fmt.Appendf(want, "\n## %s\n\n```text\n%s\n```\n", command, bytes.TrimSpace(featureGates.ReplaceAll(help, []byte("$1$2"))))
	}
	for _, c := range append(suiteServices(), apiserver.Snapshot()) {
		for _, sub := range append([]options.Command{{}}, c.Commands...) {
			if sub.Name == "snapshot" {
				continue // the same as binnacle snapshot
			}
			name, args := name+" "+c.Name, []string{"--help"}
			if sub.Name != "" {
				name, args = name+" "+sub.Name, []string{sub.Name, "--help"}
			}
			var help bytes.Buffer
			if code := options.Main(t.Context(), "binnacle "+c.Name, c.Short, c.Options, c.Run, args, &help, io.Discard, c.Commands...); code != 0 {
				t.Fatalf("%s: exit code %d", name, code)
			}
			section(name, help.Bytes())
		}
	}
	for _, args := range [][]string{{"up"}, {"ha"}, {"certs"}, {"certs", "check"}, {"kubeconfig"}} {
		command := name
		for _, a := range args {
			command += " " + a
		}
		_, help, _ := said(t, append(args, "--help")...)
		section(command, []byte(help))
	}
	file := filepath.Join("..", "..", "docs", "user", "flags.md")
	if *update {
		if err := os.WriteFile(file, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(file); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s differs from the help texts (%v); run go test ./cmd/binnacle -run TestFlagReference -update", file, err)
	}
}
