package h2diff_test

import (
	"slices"
	"strings"
	"testing"
)

// allScripts returns the exchanges that TestServersAgreeOnScripts compares.
func allScripts() []script {
	return slices.Concat(stateScripts(), connectionScripts(), headerScripts(), responseScripts())
}

// TestServersAgreeOnScripts compares both servers step by step.
func TestServersAgreeOnScripts(t *testing.T) {
	t.Parallel()
	known := newDifferences()
	names := map[string]bool{}
	for _, script := range allScripts() {
		if names[script.name] {
			t.Errorf("two scripts have the name %s", script.name)
		}
		names[script.name] = true
		var both [2][]step
		for n, i := range implementations {
			both[n] = exchange(t, i, script.run)
		}
		if text := known.compare(script.name, both[0], both[1]); text != "" {
			t.Errorf("script %s: unexpected differences:\n%s", script.name, text)
		}
	}
	t.Logf("%d scripts", len(names))
	for _, d := range known.unused() {
		t.Errorf("this difference does not occur any more, remove it: %s", d)
	}
}

// formatSteps formats steps for a failure message.
func formatSteps(steps []step) string {
	var b strings.Builder
	for _, s := range steps {
		for _, line := range s {
			b.WriteString("    " + line + "\n")
		}
		b.WriteString("    --\n")
	}
	return b.String()
}
