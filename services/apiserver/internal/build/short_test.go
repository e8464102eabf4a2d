package build

import "testing"

// skipInShortMode skips a test that starts several servers, or one with a configuration of its
// own and many requests. Without them the short tests of the package take a third of the time.
func skipInShortMode(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("starts servers of its own; it runs without -short")
	}
}
