package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const oldTypes = `package v1
const GroupName = "apps"
// Mode is an enum.
type Mode string
const Fast Mode = "Fast"
type Widget struct {
	metav1.TypeMeta   ` + "`json:\",inline\"`" + `
	metav1.ObjectMeta ` + "`json:\"metadata\"`" + `
	Spec WidgetSpec   ` + "`json:\"spec\"`" + `
}
type WidgetSpec struct {
	Replicas int32 ` + "`json:\"replicas\"`" + `
	Gone     bool  ` + "`json:\"gone\"`" + `
	Wide     *int32 ` + "`json:\"wide\"`" + `
}
`

const newTypesOfApps = `package v1
const GroupName = "apps"
type Mode string
const (
	Fast Mode = "Fast"
	Slow Mode = "Slow"
)
type Widget struct {
	metav1.TypeMeta   ` + "`json:\",inline\"`" + `
	metav1.ObjectMeta ` + "`json:\"metadata\"`" + `
	Spec WidgetSpec   ` + "`json:\"spec\"`" + `
}
type Gadget struct {
	metav1.TypeMeta   ` + "`json:\",inline\"`" + `
	metav1.ObjectMeta ` + "`json:\"metadata\"`" + `
}
type WidgetSpec struct {
	// +default=1
	Replicas int32 ` + "`json:\"replicas\"`" + `
	Wide     *int64 ` + "`json:\"wide\"`" + `
	// Rule is new.
	// +featureGate=Rules +optional
	Rule *Rule ` + "`json:\"rule\"`" + `
}
type Rule struct {
	When string ` + "`json:\"when\"`" + `
}
func (in *Widget) APILifecycleDeprecated() (major, minor int) {
	return 1, 34
}
func (in *Widget) APILifecycleRemoved() (major, minor int) {
	return 1, 37
}
`

const ownTable = `package features
const Named Gate = "Named"
func known() map[Gate]Spec {
	return map[Gate]Spec{
		"Same": {Default: true, Stage: GA, Locked: true},
		"Moved": {Stage: Alpha},
		"Removed": {Stage: Deprecated},
		Named: {Stage: Alpha},
	}
}
`

const publishedTable = `package features
const (
	Renamed featuregate.Feature = "Named"
	Same                        = featuregate.Feature("Same")
	Moved   featuregate.Feature = "Moved"
	Added   featuregate.Feature = "Added"
	Later   featuregate.Feature = "Later"
)
var gates = map[featuregate.Feature]featuregate.VersionedSpecs{
	Renamed: {{Version: version.MustParse("1.33"), Default: false, PreRelease: featuregate.Alpha}},
	Same: {{Version: version.MustParse("1.30"), Default: true, PreRelease: featuregate.GA, LockToDefault: true}},
	Moved: {
		{Version: version.MustParse("1.33"), Default: false, PreRelease: featuregate.Alpha},
		{Version: version.MustParse("1.34"), Default: true, PreRelease: featuregate.Beta},
		{Version: version.MustParse("1.35"), Default: true, PreRelease: featuregate.GA},
	},
	Added: {{Version: version.MustParse("1.34"), Default: false, PreRelease: featuregate.Alpha}},
	Later: {{Version: version.MustParse("1.35"), Default: false, PreRelease: featuregate.Alpha}},
}
`

const wantReport = `1.33, ours: a
1.34: b

New kinds (1)
  apps/v1 Gadget

Kinds that are removed or deprecated (1)
  apps/v1 Widget: deprecated in 1.34, removed in 1.37

New fields (1)
  apps/v1 WidgetSpec.rule *Rule, gate Rules

Fields that are gone or have another type (2)
  apps/v1 WidgetSpec.gone: gone
  apps/v1 WidgetSpec.wide: *int32 -> *int64

Changed defaults (1)
  apps/v1 WidgetSpec.replicas: "" -> "1"

New types (1)
  apps/v1 Rule, fields: when

New constants (1)
  apps/v1 Mode "Slow"

New feature gates (1)
  Added: Alpha, off

Changed feature gates (1)
  Moved: Alpha, off -> Beta, on

Feature gates that are gone (1)
  Removed
`

// TestReportListsEachDifference compares the report of two versions that differ in kinds, fields and
// gates with the wanted text.
func TestReportListsEachDifference(t *testing.T) {
	ours := stateOf(t, 33, "a", oldTypes, ownTable)
	ours.kinds = map[string]bool{"apps/v1 Widget": true}
	theirs := stateOf(t, 34, "b", newTypesOfApps, publishedTable)
	var got strings.Builder
	report(&got, ours, theirs)
	if got.String() != wantReport {
		t.Errorf("got report\n%s\nwant\n%s", got.String(), wantReport)
	}
}

// TestReportOfEqualStatesIsEmpty checks that a report of equal states has headings only.
func TestReportOfEqualStatesIsEmpty(t *testing.T) {
	s := stateOf(t, 33, "a", oldTypes, ownTable)
	s.kinds = map[string]bool{"apps/v1 Widget": true}
	var got strings.Builder
	report(&got, s, s)
	if strings.Contains(got.String(), "\n  ") {
		t.Errorf("got report\n%s\nwant no indented lines", got.String())
	}
}

// stateOf returns the state of a version whose group apps/v1 has the given types, and whose feature
// gates are those of a table. Both are Go source texts.
func stateOf(t *testing.T, minor int, source, types, gates string) *state {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "apps", "v1", "types.go"), types)
	table := filepath.Join(dir, "gates.go")
	write(t, table, gates)
	s := &state{minor: minor, sources: []string{source}}
	var err error
	if s.packages, err = readTypes(dir); err != nil {
		t.Fatal(err)
	}
	if s.gates, err = readGates([]string{table}, minor); err != nil {
		t.Fatal(err)
	}
	return s
}

func write(t *testing.T, file, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestLocalReadsRepository checks that the folders of types, kinds and gates exist in this
// repository.
func TestLocalReadsRepository(t *testing.T) {
	s, err := local(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"apps", "apiextensions", "apiregistration"} {
		found := false
		for path := range s.packages {
			found = found || strings.HasPrefix(path, name+"/")
		}
		if !found {
			t.Errorf("got no package of types for %s, want at least one", name)
		}
	}
	if !s.kinds["apps/v1 Deployment"] {
		t.Errorf("got %d kinds without apps/v1 Deployment, want it among them", len(s.kinds))
	}
	if len(s.gates) == 0 {
		t.Error("got no feature gates, want some")
	}
}
