package main

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
)

// unsteady follows the name of a test that may pass as well.
const unsteady = "?"

// readExpected reads the expected failures with their reasons by package. A line has a package, a
// test and the reason.
func readExpected(file string) (map[string]map[string]string, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	out := map[string]map[string]string{}
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		words := strings.SplitN(line, " ", 3)
		if len(words) < 3 {
			return nil, fmt.Errorf("%s:%d: want a package, a test and a reason", file, n)
		}
		if out[words[0]] == nil {
			out[words[0]] = map[string]string{}
		}
		out[words[0]][words[1]] = words[2]
	}
	return out, lines.Err()
}

// report prints the results of a package and returns the number of unexpected ones.
func report(w io.Writer, name string, results map[string]outcome, expected map[string]string) int {
	counts := map[outcome]int{}
	differences := 0
	for _, test := range slices.Sorted(maps.Keys(results)) {
		got := results[test]
		counts[got]++
		reason, listed := expected[test]
		flakyReason, flaky := expected[test+unsteady]
		failed := got == fail || got == unfinished
		switch {
		case failed && flaky:
			fmt.Fprintf(w, "  possible failure: %s: %s\n", test, flakyReason)
		case failed && listed:
			fmt.Fprintf(w, "  expected failure: %s: %s\n", test, reason)
		case failed:
			differences++
			fmt.Fprintf(w, "  UNEXPECTED FAILURE: %s (%s)\n", test, got)
		case listed && got == pass:
			differences++
			fmt.Fprintf(w, "  UNEXPECTED PASS: %s, expected to fail: %s\n", test, reason)
		}
	}
	fmt.Fprintf(w, "  %s: %d passed, %d failed, %d skipped, %d differ\n", name, counts[pass],
		counts[fail]+counts[unfinished], counts["SKIP"], differences)
	return differences
}
