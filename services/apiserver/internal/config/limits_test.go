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
	serverOptions := config.NewOptions()
	defaults := map[string]string{}
	sections := &options.Sections{}
	serverOptions.AddFlags(sections)
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
	for _, limitRow := range limitTable(&serverOptions.Bounds) {
		if !slices.Contains(names, limitRow.Section) {
			names = append(names, limitRow.Section)
			tables[limitRow.Section] = "| what | limit | beyond it | protects |\n|---|---|---|---|\n"
		}
		limit := limitRow.Limit
		if limitRow.Flag != "" {
			value, ok := defaults[limitRow.Flag]
			if !ok {
				t.Errorf("%s: got unknown flag --%s", limitRow.Subject, limitRow.Flag)
			}
			limit = fmt.Sprintf("`--%s` (%s)", limitRow.Flag, strings.ReplaceAll(limit, "%s", value))
		}
		if limitRow.Subject == "" || limitRow.Limit == "" || limitRow.Effect == "" || limitRow.Reason == "" {
			t.Errorf("got limit %+v, want all fields set", limitRow)
		}
		tables[limitRow.Section] += fmt.Sprintf("| %s | %s | %s | %s |\n", limitRow.Subject, limit, limitRow.Effect, limitRow.Reason)
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
