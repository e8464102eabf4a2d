package golden

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestDiffReportsDifferences(t *testing.T) {
	object := func(fields string) Answer {
		return Answer{Status: 200, Body: map[string]any{"a": fields, "managedFields": []any{fields}}}
	}
	for _, tc := range []struct {
		name       string
		want, got  Answer
		skip       string
		wantLines  int
		equivalent bool
	}{
		{name: "equal", want: object("x"), got: object("x"), equivalent: true},
		{name: "skipped field", want: Answer{Body: map[string]any{"f": 1}}, got: Answer{Body: map[string]any{"f": 2}}, skip: "f", equivalent: true},
		{name: "two fields", want: object("x"), got: object("y"), wantLines: 2},
		{name: "another status hides the rest", want: object("x"), got: Answer{Status: 404, Body: "y"}, wantLines: 1},
		{name: "extra header", want: Answer{Status: 200}, got: Answer{Status: 200, Headers: map[string][]string{"Warning": {"x"}}}, wantLines: 1},
		{name: "list lengths", want: Answer{Body: []any{1}}, got: Answer{Body: []any{1, 2}}, wantLines: 1},
		{name: "ages of a table", want: Answer{Body: map[string]any{"cells": []any{"0s"}}}, got: Answer{Body: map[string]any{"cells": []any{"2s"}}}, equivalent: true},
		{name: "no age", want: Answer{Body: map[string]any{"cells": []any{"0s"}}}, got: Answer{Body: map[string]any{"cells": []any{"<unknown>"}}}, wantLines: 1},
		{name: "ages elsewhere", want: Answer{Body: map[string]any{"timeout": "0s"}}, got: Answer{Body: map[string]any{"timeout": "2s"}}, wantLines: 1},
		{name: "missing and extra", want: Answer{Body: map[string]any{"a": 1}}, got: Answer{Body: map[string]any{"b": 1}}, wantLines: 2},
		{name: "wording", want: Answer{Body: map[string]any{"message": "a"}}, got: Answer{Body: map[string]any{"message": "b"}}, wantLines: 1, equivalent: true},
		{name: "a missing message is no wording", want: Answer{Body: map[string]any{"message": "a"}}, got: Answer{Body: map[string]any{}}, wantLines: 1, equivalent: false},
		{name: "4xx for a plain 500", want: Answer{Status: 500, Body: map[string]any{}}, got: Answer{Status: 400}, equivalent: true},
		{name: "4xx for a 500 with a reason", want: Answer{Status: 500, Body: map[string]any{"reason": "InternalError"}}, got: Answer{Status: 400}, wantLines: 1},
		{name: "skipped field in YAML", want: Answer{Body: "a: 1\nmetadata:\n  f:\n  - x: 1\n    y: 2\n  name: n\n"}, got: Answer{Body: "a: 1\nmetadata:\n  name: n\n"}, skip: "f", equivalent: true},
		{name: "another field in YAML", want: Answer{Body: "a: 1\nf:\n- x: 1\n"}, got: Answer{Body: "a: 2\n"}, skip: "f", wantLines: 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			lines := diff(tc.want, tc.got, tc.skip)
			if len(lines) != tc.wantLines || onlyWording(lines) != tc.equivalent {
				t.Errorf("got %q, want %d lines, equivalent: %v", lines, tc.wantLines, tc.equivalent)
			}
		})
	}
}

func TestNormalReplacesVolatileValues(t *testing.T) {
	vars := map[string]string{"ns": "g-case-1"}
	got := normal(map[string]any{
		"uid": "2cfd0c7e-76a7-4b7c-a5a9-5a2c5bd9bd10", "resourceVersion": "12", "continue": "abc", "generateName": "p-", "name": "p-x7",
		"list": []any{"at 2025-01-02T03:04:05Z in g-case-1", "10.0.0.17", "too old resource version: 5 (1234)"},
	}, vars)
	want := `{"continue":"<continue>","generateName":"p-","list":["at <time> in {ns}","<cluster-ip>","too old resource version: 5 (1234)"],"name":"p-<random>","resourceVersion":"<rv>","uid":"<uid>"}`
	if plain := strings.NewReplacer(`\u003c`, "<", `\u003e`, ">").Replace(text(got)); plain != want {
		t.Errorf("got  %s\nwant %s", plain, want)
	}
}

func TestKnownDifferencesAreChecked(t *testing.T) {
	file := filepath.Join(t.TempDir(), "known.yaml")
	write := func(s string) {
		if err := os.WriteFile(file, []byte(s), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, bad := range []string{
		"- {case: a, step: 1}",
		"- {case: a, step: 1, reason: x}\n- {case: a, step: 1, reason: y}",
		"- {case: a, step: 1, reason: x, more: y}",
	} {
		write(bad)
		if _, err := LoadKnown(file); err == nil {
			t.Errorf("%q: got no error", bad)
		}
	}
	write("- {case: a, step: 1, reason: x}\n- {case: b, step: 3, reason: y}")
	known, err := LoadKnown(file)
	if err != nil {
		t.Fatal(err)
	}
	c := &Case{File: "a", Steps: make([]Step, 2)}
	for _, tc := range []struct {
		step       int
		equivalent bool
		wantErr    bool
	}{
		{1, false, false}, {1, true, true}, {2, true, false}, {2, false, true},
	} {
		if err := known.Check(Result{Case: c, Step: tc.step, Equivalent: tc.equivalent}); (err != nil) != tc.wantErr {
			t.Errorf("step %d, agrees %v: got %v, want (err != nil) = %v", tc.step, tc.equivalent, err, tc.wantErr)
		}
	}
	if strays := known.Unknown([]*Case{c}); len(strays) != 1 || strays[0] != "b step 3" {
		t.Errorf("got %q, want b step 3", strays)
	}
}
