package fieldvalidation

import (
	"errors"
	"strings"
	"testing"
)

// TestStrictErrorBecomesWarningPerField checks that a strict decoding error becomes one warning for each field.
func TestStrictErrorBecomesWarningPerField(t *testing.T) {
	for text, want := range map[string]string{
		`unknown field "a"`: `unknown field "a"`,
		"yaml: unmarshal errors:\n  line 2: key \"a\" already set in map\n  line 3: key \"b\" already set in map": "line 2: key \"a\" already set in map|line 3: key \"b\" already set in map",
		"error converting YAML to JSON: yaml: unmarshal errors:\n  line 2: key \"a\" already set in map":          "line 2: key \"a\" already set in map",
	} {
		if got := strings.Join(splitErrors(errors.New(text)), "|"); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}
