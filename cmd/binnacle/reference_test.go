package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"binnacle/libs/healthcheck"
	"binnacle/libs/options"
	apiserver "binnacle/services/apiserver/program"
)

var (
	update = flag.Bool("update", false, "write the flag reference")

	// featureGates matches the list of feature gates, which fills half of a help text.
	featureGates = regexp.MustCompile(`(?s)(--feature-gates .*?)\s*Options are:.*?(\n      --)`)
	// documentedCommand matches a command of binnacle in an example, with its continuation lines.
	documentedCommand = regexp.MustCompile(`(?m)^\$ (?:\./)?binnacle ((?:.*\\\n)*.*)$`)
	documentedFlag    = regexp.MustCompile(`--[a-z0-9-]+`)
)

// help contains the help text of a command.
type help struct{ command, text string }

// helpTexts returns the help texts of all commands except etcd and nats-server.
func helpTexts(t *testing.T) (out []help) {
	t.Helper()
	for _, command := range append(suiteServices(), apiserver.Snapshot()) {
		subcommands := []string{""}
		for _, sub := range command.Commands {
			// apiserver snapshot is snapshot, and healthcheck is the same for all.
			if sub.Name != "snapshot" && (sub.Name != healthcheck.Name || command.Name == "apiserver") {
				subcommands = append(subcommands, sub.Name)
			}
		}
		for _, sub := range subcommands {
			words := strings.Fields(command.Name + " " + sub)
			var text bytes.Buffer
			if code := options.Main(t.Context(), name+" "+command.Name, command.Short, command.Options, command.Run,
				append(words[1:], "--help"), &text, io.Discard, command.Commands...); code != 0 {
				t.Fatalf("%s: got exit code %d, want 0", words, code)
			}
			out = append(out, help{strings.Join(words, " "), text.String()})
		}
	}
	for _, command := range []string{"up", "ha", "certs", "certs check", "kubeconfig"} {
		_, text, _ := runCommand(t, append(strings.Fields(command), "--help")...)
		out = append(out, help{command, text})
	}
	return out
}

// TestFlagReferenceMatchesHelp compares docs/user/flags.md with the help texts.
func TestFlagReferenceMatchesHelp(t *testing.T) {
	want := "# Flags\n\nGenerated from `--help`. Run `go test ./cmd/binnacle -run TestFlagReferenceMatchesHelp -update` after a change.\n" +
		"[configuration.md](configuration.md) explains configuration files and groups of flags. The lists of\n" +
		"feature gates are left out; `binnacle apiserver --help` prints them.\n"
	for _, h := range helpTexts(t) {
		want += fmt.Sprintf("\n## %s %s\n\n```text\n%s\n```\n", name, h.command,
			strings.TrimSpace(featureGates.ReplaceAllString(h.text, "$1$2")))
	}
	file := filepath.Join("..", "..", "docs", "user", "flags.md")
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != want {
		t.Errorf("%s differs from the help texts (%v); run go test ./cmd/binnacle -run TestFlagReferenceMatchesHelp -update", file, err)
	}
}

// TestDocumentedCommandsExist checks that commands and flags in examples exist.
func TestDocumentedCommandsExist(t *testing.T) {
	texts := helpTexts(t)
	// Longer command names come first.
	slices.SortFunc(texts, func(a, b help) int { return len(b.command) - len(a.command) })
	pages, err := filepath.Glob(filepath.Join("..", "..", "docs", "user", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, page := range append(pages, filepath.Join("..", "..", "README.md")) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range documentedCommand.FindAllStringSubmatch(string(text), -1) {
			found++
			i := slices.IndexFunc(texts, func(h help) bool { return strings.HasPrefix(m[1]+" ", h.command+" ") })
			if i < 0 {
				t.Errorf("%s: got unknown command binnacle %.40q, want i at least 0", page, m[1])
				continue
			}
			for _, f := range documentedFlag.FindAllString(m[1], -1) {
				if !strings.Contains(texts[i].text, f+" ") {
					t.Errorf("%s: binnacle %s: got unknown flag %s, want only flags of its help", page, texts[i].command, f)
				}
			}
		}
	}
	if found < 10 {
		t.Errorf("got only %d documented commands, want at least 10", found)
	}
}
