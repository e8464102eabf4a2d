package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"
)

const emptySum = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" // SHA-256 of no bytes

// provenanceOf returns the decoded statement for a file without content.
func provenanceOf(t *testing.T, settings config) map[string]any {
	t.Helper()
	settings.Out = t.TempDir()
	write(t, filepath.Join(settings.Out, "a.tar.gz"), "")
	sources := t.TempDir()
	write(t, filepath.Join(sources, "go.sum"), "")
	t.Chdir(sources)
	data, err := settings.newStatement([]string{"a.tar.gz"}, "go1.99")
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	return got
}

// TestStatementHasFieldsOfSLSA compares a statement with the fields that in-toto v1 and SLSA v1
// define.
func TestStatementHasFieldsOfSLSA(t *testing.T) {
	got := provenanceOf(t, config{
		Version: "v1.2.3", Architectures: []string{"amd64"}, Commit: "abc", Time: time.Unix(1_700_000_000, 0),
		Source: "git+https://example.org/binnacle", Builder: "https://example.org/builder",
	})
	want := map[string]any{
		"_type":         "https://in-toto.io/Statement/v1",
		"subject":       []any{map[string]any{"name": "a.tar.gz", "digest": map[string]any{"sha256": emptySum}}},
		"predicateType": "https://slsa.dev/provenance/v1",
		"predicate": map[string]any{
			"buildDefinition": map[string]any{
				"buildType": "https://binnacle.invalid/dist/v1",
				"externalParameters": map[string]any{
					"version":       "v1.2.3",
					"architectures": []any{"amd64"},
					"source":        "git+https://example.org/binnacle",
				},
				"internalParameters": map[string]any{"SOURCE_DATE_EPOCH": "1700000000"},
				"resolvedDependencies": []any{
					map[string]any{
						"name":   "source",
						"uri":    "git+https://example.org/binnacle",
						"digest": map[string]any{"gitCommit": "abc"},
					},
					map[string]any{"name": "go.sum", "digest": map[string]any{"sha256": emptySum}},
				},
			},
			"runDetails": map[string]any{"builder": map[string]any{
				"id":      "https://example.org/builder",
				"version": map[string]any{"go": "go1.99"},
			}},
		},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

// TestStatementOfChangedSourcesHasNoCommit checks that sources that differ from a commit have no
// digest.
func TestStatementOfChangedSourcesHasNoCommit(t *testing.T) {
	got := provenanceOf(t, config{Builder: localBuilder})
	dependencies := got["predicate"].(map[string]any)["buildDefinition"].(map[string]any)["resolvedDependencies"].([]any)
	if _, has := dependencies[0].(map[string]any)["digest"]; has {
		t.Errorf("got %v, want a source without digest", dependencies[0])
	}
}

// TestCommitIsRecordedForCleanSources runs git in a checkout with and without changes.
func TestCommitIsRecordedForCleanSources(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	write(t, filepath.Join(dir, "f"), "one")
	git := func(args ...string) {
		t.Helper()
		args = append([]string{"-c", "user.name=t", "-c", "user.email=t@example.org"}, args...)
		if _, err := commandOutput(t.Context(), "git", args...); err != nil {
			t.Fatal(err)
		}
	}
	git("init", "-q")
	git("add", "f")
	git("commit", "-q", "-m", "one")
	for text, want := range map[string]bool{"one": true, "two": false} {
		if err := os.WriteFile("f", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c := config{Version: "v1"}
		if err := c.complete(t.Context()); err != nil {
			t.Fatal(err)
		}
		if (c.Commit != "") != want {
			t.Errorf("content %s: got commit %q, want one: %t", text, c.Commit, want)
		}
	}
}
