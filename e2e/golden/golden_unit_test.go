package golden

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDifferencesOfResponses checks which differences are reported, and which count as a different
// wording only.
func TestDifferencesOfResponses(t *testing.T) {
	object := func(fields string) Response {
		return Response{Status: 200, Body: map[string]any{"a": fields, "managedFields": []any{fields}}}
	}
	for _, test := range []struct {
		name       string
		want, got  Response
		skip       string
		wantLines  int
		equivalent bool
	}{
		{name: "equal", want: object("x"), got: object("x"), equivalent: true},
		{
			name:       "skipped field is ignored",
			want:       Response{Body: map[string]any{"f": 1}},
			got:        Response{Body: map[string]any{"f": 2}},
			skip:       "f",
			equivalent: true,
		},
		{name: "each different field is reported", want: object("x"), got: object("y"), wantLines: 2},
		{name: "another status hides the rest", want: object("x"), got: Response{Status: 404, Body: "y"}, wantLines: 1},
		{
			name:      "extra header is reported",
			want:      Response{Status: 200},
			got:       Response{Status: 200, Headers: map[string][]string{"Warning": {"x"}}},
			wantLines: 1,
		},
		{
			name:      "different list lengths are reported",
			want:      Response{Body: []any{1}},
			got:       Response{Body: []any{1, 2}},
			wantLines: 1,
		},
		{
			name:       "ages in table cells are equivalent",
			want:       Response{Body: map[string]any{"cells": []any{"0s"}}},
			got:        Response{Body: map[string]any{"cells": []any{"2s"}}},
			equivalent: true,
		},
		{
			name:      "unknown age differs from an age",
			want:      Response{Body: map[string]any{"cells": []any{"0s"}}},
			got:       Response{Body: map[string]any{"cells": []any{"<unknown>"}}},
			wantLines: 1,
		},
		{
			name:      "ages outside table cells differ",
			want:      Response{Body: map[string]any{"timeout": "0s"}},
			got:       Response{Body: map[string]any{"timeout": "2s"}},
			wantLines: 1,
		},
		{
			name:      "missing and extra fields are reported",
			want:      Response{Body: map[string]any{"a": 1}},
			got:       Response{Body: map[string]any{"b": 1}},
			wantLines: 2,
		},
		{
			name:       "other wording of a message is equivalent",
			want:       Response{Body: map[string]any{"message": "a"}},
			got:        Response{Body: map[string]any{"message": "b"}},
			wantLines:  1,
			equivalent: true,
		},
		{
			name:       "missing message is reported",
			want:       Response{Body: map[string]any{"message": "a"}},
			got:        Response{Body: map[string]any{}},
			wantLines:  1,
			equivalent: false,
		},
		{
			name:       "4xx is equivalent to a 500 without reason",
			want:       Response{Status: 500, Body: map[string]any{}},
			got:        Response{Status: 400},
			equivalent: true,
		},
		{
			name:      "4xx differs from a 500 with a reason",
			want:      Response{Status: 500, Body: map[string]any{"reason": "InternalError"}},
			got:       Response{Status: 400},
			wantLines: 1,
		},
		{
			name:       "skipped field in YAML is ignored",
			want:       Response{Body: "a: 1\nmetadata:\n  f:\n  - x: 1\n    y: 2\n  name: n\n"},
			got:        Response{Body: "a: 1\nmetadata:\n  name: n\n"},
			skip:       "f",
			equivalent: true,
		},
		{
			name:      "other field in YAML is reported",
			want:      Response{Body: "a: 1\nf:\n- x: 1\n"},
			got:       Response{Body: "a: 2\n"},
			skip:      "f",
			wantLines: 1,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			lines := differences(test.want, test.got, test.skip)
			if len(lines) != test.wantLines {
				t.Errorf("differences(%+v, %+v, %q) = %q, want %d lines", test.want, test.got, test.skip, lines, test.wantLines)
			}
			if got := onlyWording(lines); got != test.equivalent {
				t.Errorf("onlyWording(%q) = %t, want %t", lines, got, test.equivalent)
			}
		})
	}
}

// TestReplaceVariableValues checks that UIDs, times, revisions and other values that differ between
// runs become placeholders.
func TestReplaceVariableValues(t *testing.T) {
	vars := map[string]string{"ns": "g-case-1"}
	got := replaceVariableValues(map[string]any{
		"uid":             "2cfd0c7e-76a7-4b7c-a5a9-5a2c5bd9bd10",
		"resourceVersion": "12",
		"continue":        "abc",
		"generateName":    "p-",
		"name":            "p-x7",
		"list":            []any{"at 2025-01-02T03:04:05Z in g-case-1", "10.0.0.17", "too old resource version: 5 (1234)"},
	}, vars)
	want := `{"continue":"<continue>","generateName":"p-","list":["at <time> in {ns}","<cluster-ip>","too old resource version: 5 (1234)"],"name":"p-<random>","resourceVersion":"<rv>","uid":"<uid>"}`
	if plain := strings.NewReplacer(`\u003c`, "<", `\u003e`, ">").Replace(jsonText(got)); plain != want {
		t.Errorf("replaceVariableValues:\ngot  %s\nwant %s", plain, want)
	}
}

// TestKnownDifferencesAreChecked checks that a difference must be listed with a reason, and that a
// listed step must exist and differ.
func TestKnownDifferencesAreChecked(t *testing.T) {
	file := filepath.Join(t.TempDir(), "known.yaml")
	write := func(s string) {
		if err := os.WriteFile(file, []byte(s), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, invalid := range []string{
		"- {case: a, step: 1}",
		"- {case: a, step: 1, reason: x}\n- {case: a, step: 1, reason: y}",
		"- {case: a, step: 1, reason: x, more: y}",
	} {
		write(invalid)
		if _, err := LoadKnown(file); err == nil {
			t.Errorf("LoadKnown of %q = nil, want an error", invalid)
		}
	}
	write("- {case: a, step: 1, reason: x}\n- {case: b, step: 3, reason: y}")
	known, err := LoadKnown(file)
	if err != nil {
		t.Fatal(err)
	}
	testCase := &Case{File: "a", Steps: make([]Step, 2)}
	for _, test := range []struct {
		step       int
		equivalent bool
		wantErr    bool
	}{
		{step: 1, equivalent: false, wantErr: false},
		{step: 1, equivalent: true, wantErr: true},
		{step: 2, equivalent: true, wantErr: false},
		{step: 2, equivalent: false, wantErr: true},
	} {
		if err := known.Check(Result{Case: testCase, Step: test.step, Equivalent: test.equivalent}); (err != nil) != test.wantErr {
			t.Errorf("step %d, equivalent %t: Check = %v, want an error: %t", test.step, test.equivalent, err, test.wantErr)
		}
	}
	if unknown := known.MissingSteps([]*Case{testCase}); len(unknown) != 1 || unknown[0] != "b step 3" {
		t.Errorf("MissingSteps = %q, want [\"b step 3\"]", unknown)
	}
}
