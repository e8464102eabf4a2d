package structural_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"binnacle/services/apiserver/internal/crd/structural"
	v1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
)

// TestPatternsAreNotCompiled: patterns are parsed to check whether they compile. Compiling costs
// more the more repetitions they have.
func TestPatternsAreNotCompiled(t *testing.T) {
	const wide = "^((a{1,9}b{1,9}){1,9})*%d$"
	of := func(form string) *v1.JSONSchemaProps {
		s := &v1.JSONSchemaProps{Type: "object", Properties: map[string]v1.JSONSchemaProps{}}
		for i := range 50 {
			s.Properties[fmt.Sprint(i)] = v1.JSONSchemaProps{Type: "string", Pattern: fmt.Sprintf(form, i)}
		}
		return s
	}
	check := func(s *v1.JSONSchemaProps) float64 {
		return testing.AllocsPerRun(2, func() {
			structural.Reduced(s)
			if errs := structural.Check(nil, s); len(errs) > 0 {
				t.Fatal(errs)
			}
		})
	}
	compiling := testing.AllocsPerRun(2, func() {
		for i := range 50 {
			regexp.MustCompile(fmt.Sprintf(wide, i))
		}
	})
	if plain, repeated := check(of("^ab%d$")), check(of(wide)); repeated-plain > compiling/4 {
		t.Errorf("got %.0f allocations for simple patterns, %.0f for repeated ones, %.0f to compile those", plain, repeated, compiling)
	}
}

// TestInvalidPatterns: the error of a pattern is that of compiling it.
func TestInvalidPatterns(t *testing.T) {
	for _, pattern := range []string{"(", "a**", "[z-a]", `\8`, "a{1001}", strings.Repeat("(", 1001) + strings.Repeat(")", 1001), "((a{100}){100}){100}", "\xff", "a|*"} {
		_, want := regexp.Compile(pattern)
		if want == nil {
			t.Fatalf("%q compiles", pattern)
		}
		s := &v1.JSONSchemaProps{Type: "object", Properties: map[string]v1.JSONSchemaProps{"a": {Type: "string", AllOf: []v1.JSONSchemaProps{{Pattern: pattern}}, Pattern: pattern}}}
		errs := structural.Check(nil, structural.Reduced(s))
		if len(errs) == 0 || !strings.HasSuffix(errs[0].Detail, want.Error()) {
			t.Errorf("%q: got %v, want %v", pattern, errs, want)
		}
	}
}
