package main

import (
	"slices"
	"strings"
	"testing"
)

// TestReadResultsCountsTestsAndSpecs checks that Go tests and Ginkgo specs are counted separately, and
// that a package which does not build counts as failed.
func TestReadResultsCountsTestsAndSpecs(t *testing.T) {
	const events = `{"Action":"start","Package":"p/specs"}
{"Action":"output","Package":"p/specs","Test":"TestAll","Output":"FAIL! -- \u001b[1m7 Passed\u001b[0m | \u001b[1m2 Failed\u001b[0m | 1 Pending | 3 Skipped\n"}
{"Action":"fail","Package":"p/specs","Test":"TestAll"}
{"Action":"fail","Package":"p/specs"}
{"Action":"pass","Package":"p/tests","Test":"TestA"}
{"Action":"skip","Package":"p/tests","Test":"TestB"}
{"Action":"pass","Package":"p/tests"}
{"ImportPath":"p/broken","Action":"build-output","Output":"undefined: x\n"}
{"ImportPath":"p/broken","Action":"build-fail"}
`
	var log strings.Builder
	got, err := readResults(strings.NewReader(events), &log)
	if err != nil {
		t.Fatal(err)
	}
	want := []result{
		{name: "p/specs", tests: tally{failed: 1}, specs: tally{passed: 7, failed: 2, skipped: 4}, failed: true, hasSpecs: true},
		{name: "p/tests", tests: tally{passed: 1, skipped: 1}},
		{name: "p/broken", failed: true},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if !strings.Contains(log.String(), "undefined: x") {
		t.Errorf("got log %q, want the error: undefined: x", log.String())
	}
}
