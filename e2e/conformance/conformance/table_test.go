package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// reportText is a report of Ginkgo with specs in each state.
const reportText = `[{"SpecReports": [
  {"LeafNodeType": "SynchronizedBeforeSuite", "State": "passed"},
  {"LeafNodeType": "It", "ContainerHierarchyTexts": ["[sig-a] Pods"], "LeafNodeText": "pass [Conformance]", "State": "passed"},
  {"LeafNodeType": "It", "ContainerHierarchyTexts": ["[sig-a] Pods"], "LeafNodeText": "fail [Conformance]", "State": "timedout", "Failure": {"Message": "first line\nsecond"}},
  {"LeafNodeType": "It", "ContainerHierarchyTexts": ["[sig-a] Pods"], "LeafNodeText": "fail as expected [Conformance]", "State": "failed"},
  {"LeafNodeType": "It", "ContainerHierarchyTexts": ["[sig-a] Pods"], "LeafNodeText": "pass unexpectedly [Conformance]", "State": "passed"},
  {"LeafNodeType": "It", "ContainerHierarchyTexts": ["[sig-b] Exec"], "LeafNodeText": "one [Conformance]", "State": "skipped"},
  {"LeafNodeType": "It", "ContainerHierarchyTexts": ["[sig-b] Exec"], "LeafNodeText": "two [Conformance]", "State": "skipped"},
  {"LeafNodeType": "It", "ContainerHierarchyTexts": ["[sig-b]"], "LeafNodeText": "skips itself [Conformance]", "State": "skipped", "Failure": {"Message": "no provider"}},
  {"LeafNodeType": "It", "ContainerHierarchyTexts": ["[sig-b]"], "LeafNodeText": "not selected [Conformance]", "State": "skipped"},
  {"LeafNodeType": "It", "ContainerHierarchyTexts": ["[sig-b]"], "LeafNodeText": "not of conformance", "State": "failed"}
]}]`

const expectedText = `
skipped:
- reason: containers run
  specs: ["[sig-b] Exec *"]
failed:
- reason: a known fault
  specs: ["[sig-a] Pods fail as expected [Conformance]", "[sig-a] Pods pass unexpectedly [Conformance]", "[sig-c] gone [Conformance]"]
`

// TestTableShowsDifferencesFromExpectedResults checks that the table marks specs that fail
// unexpectedly, pass unexpectedly, or are gone.
func TestTableShowsDifferencesFromExpectedResults(t *testing.T) {
	dir := t.TempDir()
	report, file := filepath.Join(dir, "report.json"), filepath.Join(dir, "expected.yaml")
	for path, text := range map[string]string{report: reportText, file: expectedText} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	results, err := readReport(report)
	if err != nil {
		t.Fatal(err)
	}
	want, err := readExpected(file, false)
	if err != nil {
		t.Fatal(err)
	}
	table := compare(results, want, regexp.MustCompile(""))
	table.requireAll(want, results, 5)
	var out strings.Builder
	table.print(&out)
	const lines = `[sig-a]
! failed       0s  Pods fail: first line
  failed       0s  Pods fail as expected: a known fault
  passed       0s  Pods pass
! passed       0s  Pods pass unexpectedly: expected to fail: a known fault
[sig-b]
  skipped      0s  Exec one: containers run
  skipped      0s  Exec two: containers run
! skipped      0s  skips itself: no provider
! no spec has the name [sig-c] gone [Conformance]
! 4 specs ran, at least 5 must
7 specs: 2 passed, 2 failed, 3 skipped; 5 differ from the expected results (!)
`
	if out.String() != lines {
		t.Errorf("got\n%s\nwant\n%s", out.String(), lines)
	}
}
