package scenarios

import (
	"bytes"
	"cmp"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"binnacle/e2e/harness"
)

// kind is one file of testdata/kinds: an object and the expected output of kubectl.
type kind struct {
	Resource string `yaml:"resource"`
	Kind     string `yaml:"kind"`
	Name     string `yaml:"name"`
	Cluster  bool   `yaml:"cluster"` // cluster-scoped
	Lingers  bool   `yaml:"lingers"` // the deletion waits for a controller
	Manifest string `yaml:"manifest"`
	// Again is the output of the second apply, "unchanged" if empty. With the patch strategy
	// "replace", kubectl sends a patch without an effect.
	Again    string   `yaml:"again"`
	Table    []string `yaml:"table"`
	Wide     []string `yaml:"wide"` // defaults to Table
	Row      string   `yaml:"row"`
	Describe []string `yaml:"describe"`
	Changed  string   `yaml:"changed"` // the manifest with one change, which is visible at Look
	Look     struct {
		Path   string `yaml:"path"`
		Before string `yaml:"before"`
		After  string `yaml:"after"`
	} `yaml:"look"`
	Merge     patch  `yaml:"merge"`
	Strategic *patch `yaml:"strategic"`
	Scale     bool   `yaml:"scale"`
}

// patch is a patch and the expected value at a path.
type patch struct {
	Patch string `yaml:"patch"`
	Path  string `yaml:"path"`
	Want  string `yaml:"want"`
}

// loadKinds reads the files of testdata/kinds.
func loadKinds(t *testing.T) []kind {
	t.Helper()
	files, err := filepath.Glob("testdata/kinds/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no kinds: %v", err)
	}
	var kinds []kind
	for _, f := range files {
		raw, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		var k kind
		dec := yaml.NewDecoder(bytes.NewReader(raw))
		dec.KnownFields(true)
		if err := dec.Decode(&k); err != nil {
			t.Fatalf("%s: %v", f, err)
		}
		kinds = append(kinds, k)
	}
	return kinds
}

// TestKubectlKinds creates, reads, changes and deletes an object of each kind with kubectl.
func TestKubectlKinds(t *testing.T) {
	t.Parallel()
	cli := harness.NewCLI(t, harness.StartServer(t))
	cli.Run(t, "create", "namespace", "kinds")
	for _, k := range loadKinds(t) {
		t.Run(k.Resource, func(t *testing.T) {
			t.Parallel()
			l := &kindTest{kind: k, cli: cli.WithNamespace("kinds"), ref: k.Resource + "/" + k.Name}
			// Each step uses the object as the previous one left it.
			l.testApply(t)
			l.testTables(t)
			l.testFormats(t)
			l.testDescribe(t)
			l.testDiff(t)
			l.testLabelsAndAnnotations(t)
			l.testEdit(t)
			l.testPatches(t)
			l.testScale(t)
			l.testDelete(t)
		})
	}
}

// kindTest tests one object of a kind.
type kindTest struct {
	kind
	cli *harness.CLI
	ref string
}

// expectPatterns checks that each pattern matches one or more lines of an output.
func (l *kindTest) expectPatterns(t *testing.T, output string, patterns ...string) {
	t.Helper()
	for _, p := range patterns {
		if !regexp.MustCompile("(?m)" + p).MatchString(output) {
			t.Errorf("want /%s/ in:\n%s", p, output)
		}
	}
}

// fieldAt returns the value at a path of the object.
func (l *kindTest) fieldAt(t *testing.T, path string) string {
	t.Helper()
	return l.cli.Run(t, "get", l.ref, "-o", "jsonpath="+path)
}

// expectField checks the value at a path of the object.
func (l *kindTest) expectField(t *testing.T, path, want string) {
	t.Helper()
	if got := l.fieldAt(t, path); got != want {
		t.Errorf("%s: got %q, want %q", path, got, want)
	}
}

// testApply applies the manifest twice.
func (l *kindTest) testApply(t *testing.T) {
	t.Helper()
	l.expectPatterns(t, l.cli.RunWith(t, l.Manifest, "apply", "-f", "-"), `/`+l.Name+` created$`)
	version := l.fieldAt(t, "{.metadata.resourceVersion}")
	again := cmp.Or(l.Again, "unchanged")
	l.expectPatterns(t, l.cli.RunWith(t, l.Manifest, "apply", "-f", "-"), `/`+l.Name+` `+again+`$`)
	l.expectField(t, "{.metadata.resourceVersion}", version)
	l.expectField(t, l.Look.Path, l.Look.Before)
	if r := l.cli.Execute(t, l.Manifest, "create", "-f", "-"); r.Err == nil || !strings.Contains(r.Stderr, "(AlreadyExists)") {
		t.Errorf("second create: got %v %s, want AlreadyExists", r.Err, r.Stderr)
	}
}

// testTables checks the columns and the row of the table.
func (l *kindTest) testTables(t *testing.T) {
	t.Helper()
	wide := l.Wide
	if wide == nil {
		wide = l.Table
	}
	for option, columns := range map[string][]string{"": l.Table, "wide": wide} {
		lines := strings.Split(strings.TrimRight(l.cli.Run(t, "get", l.Resource, l.Name, "-o", option), "\n"), "\n")
		if len(lines) != 2 {
			t.Fatalf("get -o %q: got %q, want a header and a row", option, lines)
		}
		if head := regexp.MustCompile(` {2,}`).Split(strings.TrimSpace(lines[0]),
			-1); strings.Join(head, "|") != strings.Join(columns, "|") {
			t.Errorf("get -o %q: got %q, want columns %q", option, head, columns)
		}
		if option == "" {
			l.expectPatterns(t, strings.TrimSpace(lines[1]), l.Row)
		}
	}
}

// testFormats reads the object in other output formats, and explains its kind.
func (l *kindTest) testFormats(t *testing.T) {
	t.Helper()
	if got, want := l.cli.Run(t, "get", l.ref, "-o", "custom-columns=N:.metadata.name,K:.kind",
		"--no-headers"), l.Name+" "+l.Kind; strings.Join(strings.Fields(got), " ") != want {
		t.Errorf("custom-columns: got %q, want %q", got, want)
	}
	var object map[string]any
	if err := yaml.Unmarshal([]byte(l.cli.Run(t, "get", l.ref, "-o", "yaml")), &object); err != nil || object["kind"] != l.Kind {
		t.Errorf("yaml: got %v, %v, want kind %s", object["kind"], err, l.Kind)
	}
	if names := strings.Fields(l.cli.Run(t, "get", l.Resource, "-o", "name")); !strings.Contains(strings.Join(names,
		" "), "/"+l.Name) {
		t.Errorf("get -o name: want %q in %q", l.Name, names)
	}
	// explain reads the OpenAPI document of the kind's version.
	l.expectPatterns(t, l.cli.Run(t, "explain", l.Resource), `^KIND: +`+l.Kind+`$`, `^ +metadata\s+<ObjectMeta>`)
}

// testDescribe describes the object.
func (l *kindTest) testDescribe(t *testing.T) {
	t.Helper()
	l.expectPatterns(t, l.cli.Run(t, "describe", l.Resource, l.Name), append(l.Describe, `^Name: +`+l.Name+`$`)...)
}

// testDiff compares the object with the changed manifest, and applies that.
func (l *kindTest) testDiff(t *testing.T) {
	t.Helper()
	if r := l.cli.Execute(t, l.Manifest, "diff", "-f", "-"); r.Err != nil {
		t.Errorf("diff without a change: got %v\n%s%s", r.Err, r.Stdout, r.Stderr)
	}
	if r := l.cli.Execute(t, l.Changed, "diff", "-f", "-"); r.Err == nil || !strings.Contains(r.Stdout, "\n+") {
		t.Errorf("diff of a change: got %v, want code 1 and lines\n%s%s", r.Err, r.Stdout, r.Stderr)
	}
	l.expectField(t, l.Look.Path, l.Look.Before)
	l.expectPatterns(t, l.cli.RunWith(t, l.Changed, "apply", "-f", "-"), `/`+l.Name+` configured$`)
	l.expectField(t, l.Look.Path, l.Look.After)
}

// testLabelsAndAnnotations adds and removes a label, and adds an annotation.
func (l *kindTest) testLabelsAndAnnotations(t *testing.T) {
	t.Helper()
	l.expectPatterns(t, l.cli.Run(t, "label", l.ref, "e2e=yes"), ` labeled$`)
	l.expectPatterns(t, l.cli.Run(t, "get", l.Resource, "-l", "e2e=yes", "-o", "name"), `/`+l.Name+`$`)
	if r := l.cli.Execute(t, "", "label", l.ref, "e2e=no"); r.Err == nil {
		t.Error("label without --overwrite: got no error, want one")
	}
	l.expectPatterns(t, l.cli.Run(t, "label", l.ref, "e2e-"), ` unlabeled$`)
	if got := l.cli.Run(t, "get", l.Resource, "-l", "e2e", "-o", "name"); got != "" {
		t.Errorf("get -l after the label is removed: got %q, want \"\"", got)
	}
	l.expectPatterns(t, l.cli.Run(t, "annotate", l.ref, "e2e/note=some words"), ` annotated$`)
	l.expectField(t, `{.metadata.annotations.e2e/note}`, "some words")
}

// testEdit edits the annotation with an editor.
func (l *kindTest) testEdit(t *testing.T) {
	t.Helper()
	script := filepath.Join(t.TempDir(), "editor")
	if err := os.WriteFile(script, []byte("#!/bin/sh\nexec sed -i 's/some words/other words/' \"$1\"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	l.expectPatterns(t, l.cli.WithEnv("EDITOR="+script, "KUBE_EDITOR=").Run(t, "edit", l.ref), ` edited$`)
	l.expectField(t, `{.metadata.annotations.e2e/note}`, "other words")
}

// testPatches sends each type of patch twice.
func (l *kindTest) testPatches(t *testing.T) {
	t.Helper()
	patches := map[string]patch{
		"merge": l.Merge,
		"json": {
			Patch: `[{"op":"test","path":"/metadata/annotations/e2e~1note","value":"other words"},{"op":"replace","path":"/metadata/annotations/e2e~1note","value":"last words"}]`,
			Path:  `{.metadata.annotations.e2e/note}`, Want: "last words",
		},
	}
	if l.Strategic != nil {
		patches["strategic"] = *l.Strategic
	}
	for typ, p := range patches {
		l.expectPatterns(t, l.cli.Run(t, "patch", l.ref, "--type", typ, "-p", p.Patch), ` patched$`)
		l.expectField(t, p.Path, p.Want)
		if typ != "json" {
			l.expectPatterns(t, l.cli.Run(t, "patch", l.ref, "--type", typ, "-p", p.Patch), ` patched \(no change\)$`)
		}
	}
}

// testScale scales the object, if its kind can be scaled.
func (l *kindTest) testScale(t *testing.T) {
	t.Helper()
	if !l.Scale {
		return
	}
	l.expectPatterns(t, l.cli.Run(t, "scale", l.ref, "--replicas=5"), ` scaled$`)
	l.expectField(t, "{.spec.replicas}", "5")
	if r := l.cli.Execute(t, "", "scale", l.ref, "--current-replicas=4", "--replicas=6"); r.Err == nil {
		t.Error("scale with a wrong --current-replicas: got no error, want one")
	}
	l.expectField(t, "{.spec.replicas}", "5")
}

// testDelete deletes the object.
func (l *kindTest) testDelete(t *testing.T) {
	t.Helper()
	if l.Lingers {
		l.expectPatterns(t, l.cli.Run(t, "delete", l.ref, "--wait=false"), ` deleted$`)
		if l.fieldAt(t, "{.metadata.deletionTimestamp}") == "" {
			t.Error("after delete: got no deletionTimestamp, want one")
		}
		return
	}
	// An unscheduled pod is removed at once, also with a grace period.
	l.expectPatterns(t, l.cli.Run(t, "delete", l.ref, "--wait"), ` deleted$`)
	if r := l.cli.Execute(t, "", "get", l.ref); r.Err == nil || !strings.Contains(r.Stderr, "(NotFound)") {
		t.Errorf("get after delete: got %v %s, want NotFound", r.Err, r.Stderr)
	}
	if out := l.cli.Run(t, "delete", l.ref, "--ignore-not-found"); out != "" {
		t.Errorf("second delete: got %q, want \"\"", out)
	}
}
