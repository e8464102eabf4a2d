package objectmeta

import "testing"

// TestCleanStoresIntegersWithoutFraction checks that 1.0 and 1e2 become integers, and that other
// metadata keeps its text.
func TestCleanStoresIntegersWithoutFraction(t *testing.T) {
	for text, want := range map[string]string{
		`{"name":"a","deletionGracePeriodSeconds":1.0}`: `{"name":"a","deletionGracePeriodSeconds":1}`,
		`{"name":"a","generation":1e2}`:                 `{"name":"a","generation":100}`,
		`{"name": "a","generation":100}`:                `{"name": "a","generation":100}`,
	} {
		out, unknown, err := Clean([]byte(text), true, false)
		if err != nil || len(unknown) > 0 || string(out) != want {
			t.Errorf("Clean(%s) = %s, %v, %v, want %s", text, out, unknown, err, want)
		}
	}
}
