package main

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// anyEnd at the end of a name stands for all specs that start with it.
const anyEnd = "*"

// expected lists the specs that do not pass.
type expected struct {
	// Skipped specs do not run.
	Skipped []group `json:"skipped"`
	// Failed specs run and fail.
	Failed []group `json:"failed"`
}

// group holds specs with the same reason.
type group struct {
	Reason string   `json:"reason"`
	Specs  []string `json:"specs"`
	// Suite limits the group to runs of all services of the suite.
	Suite bool `json:"suite,omitempty"`
}

// readExpected reads the file of expected results, without the groups of other modes.
func readExpected(path string, suite bool) (expected, error) {
	var e expected
	text, err := os.ReadFile(path)
	if err != nil {
		return e, err
	}
	if err := yaml.UnmarshalStrict(text, &e); err != nil {
		return e, fmt.Errorf("%s: %w", path, err)
	}
	other := func(g group) bool { return g.Suite && !suite }
	e.Skipped, e.Failed = slices.DeleteFunc(e.Skipped, other), slices.DeleteFunc(e.Failed, other)
	return e, nil
}

// skipPatterns returns a regular expression for each spec that does not run.
func (e expected) skipPatterns() []string {
	var out []string
	for _, g := range e.Skipped {
		for _, name := range g.Specs {
			out = append(out, regexp.QuoteMeta(strings.TrimSuffix(name, anyEnd)))
		}
	}
	return out
}

// reason returns the reason of the group with a spec.
func reason(groups []group, name string) (string, bool) {
	for _, g := range groups {
		for _, s := range g.Specs {
			if matches(s, name) {
				return g.Reason, true
			}
		}
	}
	return "", false
}

func matches(entry, name string) bool {
	if prefix, ok := strings.CutSuffix(entry, anyEnd); ok {
		return strings.HasPrefix(name, prefix)
	}
	return entry == name
}

// unknown returns the entries that match no spec.
func (e expected) unknown(results map[string]result) []string {
	var out []string
	for _, g := range append(e.Skipped, e.Failed...) {
	entries:
		for _, s := range g.Specs {
			for name := range results {
				if matches(s, name) {
					continue entries
				}
			}
			out = append(out, s)
		}
	}
	return out
}
