package kind

import (
	"slices"
	"testing"
)

// TestFinalizerWarningsNameAddedFinalizersOnly checks that finalizers of the old object give no
// warnings.
func TestFinalizerWarningsNameAddedFinalizersOnly(t *testing.T) {
	const simple = `metadata.finalizers: "simple": prefer a domain-qualified finalizer name to avoid accidental conflicts with other finalizer writers`
	const dotted = `metadata.finalizers: "a.example.com": prefer a domain-qualified finalizer name including a path (/) to avoid accidental conflicts with other finalizer writers`
	got := finalizerWarnings(
		[]string{"simple", "a.example.com", "example.com/a", "orphan", "foregroundDeletion", "kubernetes", "old"},
		[]string{"old"},
	)
	if want := []string{dotted, simple}; !slices.Equal(got, want) {
		t.Errorf("got warnings %q, want %q", got, want)
	}
}
