package structural_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"binnacle/services/apiserver/internal/crd/structural"
	v1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
)

// TestPatternsAreNotCompiled checks that a pattern is only parsed. Compiling a pattern with many
// repetitions allocates much more.
func TestPatternsAreNotCompiled(t *testing.T) {
	const repeated = "^((a{1,9}b{1,9}){1,9})*%d$"
	schemaWithPatterns := func(format string) *v1.JSONSchemaProps {
		props := &v1.JSONSchemaProps{Type: "object", Properties: map[string]v1.JSONSchemaProps{}}
		for i := range 50 {
			props.Properties[fmt.Sprint(i)] = v1.JSONSchemaProps{Type: "string", Pattern: fmt.Sprintf(format, i)}
		}
		return props
	}
	checkAllocs := func(props *v1.JSONSchemaProps) float64 {
		return testing.AllocsPerRun(2, func() {
			structural.Minimize(props)
			if errs := structural.Check(nil, props); len(errs) > 0 {
				t.Fatal(errs)
			}
		})
	}
	compiling := testing.AllocsPerRun(2, func() {
		for i := range 50 {
			regexp.MustCompile(fmt.Sprintf(repeated, i))
		}
	})
	simple := checkAllocs(schemaWithPatterns("^ab%d$"))
	if got, limit := checkAllocs(schemaWithPatterns(repeated))-simple, compiling/4; got > limit {
		t.Errorf("Check of patterns like %q makes %.0f allocations more than of simple patterns, want at most %.0f",
			repeated, got, limit)
	}
}

// TestInvalidPatternsGetCompilationError checks that the error of an invalid pattern is that of
// compiling it.
func TestInvalidPatternsGetCompilationError(t *testing.T) {
	nestedTooDeep := strings.Repeat("(", 1001) + strings.Repeat(")", 1001)
	for _, pattern := range []string{
		"(", "a**", "[z-a]", `\8`, "a{1001}", nestedTooDeep, "((a{100}){100}){100}", "\xff", "a|*",
	} {
		_, want := regexp.Compile(pattern)
		if want == nil {
			t.Fatalf("regexp.Compile(%q) = nil, want an error", pattern)
		}
		props := &v1.JSONSchemaProps{
			Type: "object",
			Properties: map[string]v1.JSONSchemaProps{
				"a": {Type: "string", AllOf: []v1.JSONSchemaProps{{Pattern: pattern}}, Pattern: pattern},
			},
		}
		errs := structural.Check(nil, structural.Minimize(props))
		if len(errs) == 0 || !strings.HasSuffix(errs[0].Detail, want.Error()) {
			t.Errorf("Check of the pattern %q = %v, want a detail that ends with %v", pattern, errs, want)
		}
	}
}

// TestExpensivePatternsAreNotParsed checks that the size of a schema bounds the time to check its
// patterns. Each of the patterns takes milliseconds to parse, so they are not parsed.
func TestExpensivePatternsAreNotParsed(t *testing.T) {
	s := &v1.JSONSchemaProps{Type: "object", Properties: map[string]v1.JSONSchemaProps{}}
	for i := range 50_000 {
		s.Properties[fmt.Sprint(i)] = v1.JSONSchemaProps{Type: "string", Pattern: fmt.Sprintf(`(?i)[B-\x{1e942}]%d(`, i)}
	}
	if errs := structural.Check(nil, structural.Minimize(s)); len(errs) > 0 {
		t.Errorf("got %d errors, the first is %v, want none", len(errs), errs[0])
	}
}
