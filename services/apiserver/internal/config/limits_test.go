package config_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"binnacle/libs/options"
	"binnacle/services/apiserver/internal/config"
)

var update = flag.Bool("update", false, "write docs/user/limits.md")

// TestLimitReference checks that the tables of docs/user/limits.md are generated from limitTable:
// each stands between a begin and an end comment with the name of its section.
func TestLimitReference(t *testing.T) {
	o := config.NewOptions()
	defaults := map[string]string{}
	sections := &options.Sections{}
	o.AddFlags(sections)
	for _, v := range sections.Values() {
		defaults[v[0]] = strings.Replace(v[1], "m0s", "m", 1)
	}
	file := filepath.Join("..", "..", "..", "..", "docs", "user", "limits.md")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	want := string(text)
	var names []string
	tables := map[string]string{}
	for _, b := range limitTable(&o.Bounds) {
		if !slices.Contains(names, b.Section) {
			names = append(names, b.Section)
			tables[b.Section] = "| what | limit | beyond it | protects |\n|---|---|---|---|\n"
		}
		limit := b.Limit
		if b.Flag != "" {
			value, ok := defaults[b.Flag]
			if !ok {
				t.Errorf("%s: got unknown flag --%s", b.Subject, b.Flag)
			}
			limit = fmt.Sprintf("`--%s` (%s)", b.Flag, strings.ReplaceAll(limit, "%s", value))
		}
		if b.Subject == "" || b.Limit == "" || b.Effect == "" || b.Reason == "" {
			t.Errorf("limit = %+v, want all fields set", b)
		}
		tables[b.Section] += fmt.Sprintf("| %s | %s | %s | %s |\n", b.Subject, limit, b.Effect, b.Reason)
	}
	for _, name := range names {
		start, end := "<!-- begin: "+name+" -->\n", "<!-- end -->\n"
		head, rest, ok := strings.Cut(want, start)
		_, tail, ended := strings.Cut(rest, end)
		if !ok || !ended {
			t.Fatalf("%s has no place for the table %q", file, name)
		}
		want = head + start + tables[name] + end + tail
	}
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if want != string(text) {
		t.Errorf("%s differs from limitTable; run go test ./services/apiserver/internal/config -run TestLimitReference -update", file)
	}
}
