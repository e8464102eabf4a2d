package faults

import (
	"encoding/json"
	"testing"

	"binnacle/e2e/conformance/comparison"
)

// TestMinimalSatisfiesConstraints checks that the smallest value of a schema has its required fields
// and satisfies lengths, patterns, formats and bounds.
func TestMinimalSatisfiesConstraints(t *testing.T) {
	for _, c := range []struct{ schema, want string }{
		{`{"type":"object","required":["a","b"],"properties":{"a":{"type":"string","minLength":3},"b":{"type":"integer","default":1},"c":{"type":"string"}}}`, `{"a":"text"}`},
		{`{"type":"object","properties":{"spec":{"type":"object"},"status":{"type":"object"}}}`, `{"spec":{}}`},
		{`{"type":"string","enum":["x","y"]}`, `"x"`},
		{`{"type":"string","pattern":"^[0-9]+Gi$"}`, `"1Gi"`},
		{`{"type":"string","format":"date-time"}`, `"2020-01-01T00:00:00Z"`},
		{`{"type":"integer","minimum":5}`, `5`},
		{`{"type":"array","minItems":1,"items":{"type":"boolean"}}`, `[true]`},
		{`{"type":"array","items":{"type":"boolean"}}`, `[]`},
		{`{"x-kubernetes-int-or-string":true}`, `1`},
	} {
		if got := comparison.JSONText(Minimal(comparison.RoundTrip(json.RawMessage(c.schema)).(map[string]any))); got != c.want {
			t.Errorf("%s: got %s, want %s", c.schema, got, c.want)
		}
	}
}
