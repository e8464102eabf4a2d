package rules_test

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/crd/rules"
	v1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
)

// equalRules returns a schema with fields that have the same rule.
func equalRules(fields int) *v1.JSONSchemaProps {
	limit := int64(10)
	schemaProps := &v1.JSONSchemaProps{Type: "object", Properties: map[string]v1.JSONSchemaProps{}}
	for i := range fields {
		schemaProps.Properties[fmt.Sprintf("f%d", i)] = v1.JSONSchemaProps{Type: "string", MaxLength: &limit, XValidations: v1.ValidationRules{
			{Rule: "self.startsWith('a') && self != oldSelf", MessageExpression: "'not ' + self"},
		}}
	}
	return schemaProps
}

// nestedRules returns a schema of nested objects that have one rule each. fields is the number of
// fields of the innermost object.
func nestedRules(levels, fields int) *v1.JSONSchemaProps {
	props := &v1.JSONSchemaProps{Type: "object", Properties: map[string]v1.JSONSchemaProps{}}
	for i := range fields {
		props.Properties[fmt.Sprintf("f%d", i)] = v1.JSONSchemaProps{Type: "string"}
	}
	for range levels {
		props = &v1.JSONSchemaProps{
			Type:         "object",
			Properties:   map[string]v1.JSONSchemaProps{"a": *props},
			XValidations: v1.ValidationRules{{Rule: "has(self.a)"}},
		}
	}
	return props
}

// expectValid fails the test if the rules of a schema have errors.
func expectValid(t testing.TB, schemaProps *v1.JSONSchemaProps) {
	t.Helper()
	if errs := compiler.CheckSchema(rules.SchemaCheck{Schema: schemaProps, Path: field.NewPath("s")}); len(errs) > 0 {
		t.Fatalf("CheckSchema = %v, want no errors", errs)
	}
}

// TestEqualRulesShareWork checks that equal rules are compiled once and that the type of a schema is
// built once, so that the cost of a definition does not grow with the product of rules and fields.
func TestEqualRulesShareWork(t *testing.T) {
	for name, test := range map[string]struct {
		small, large *v1.JSONSchemaProps
		maxRatio     float64 // of the allocations
	}{
		// The large schema has 51 times as many rules. Each rule still makes some allocations, because
		// its cost is estimated.
		"fields": {small: equalRules(10), large: equalRules(510), maxRatio: 30},
		"levels": {small: nestedRules(2, 3000), large: nestedRules(12, 3000), maxRatio: 2},
	} {
		t.Run(name, func(t *testing.T) {
			expectValid(t, test.small)
			small := testing.AllocsPerRun(3, func() { expectValid(t, test.small) })
			large := testing.AllocsPerRun(3, func() { expectValid(t, test.large) })
			if large > test.maxRatio*small {
				t.Errorf(
					"CheckSchema makes %.0f allocations for the large schema, want at most %.0f times the %.0f for the small one",
					large, test.maxRatio, small)
			}
		})
	}
}

// TestEqualRulesAreReportedSeparately checks that the errors of equal rules are reported for each.
func TestEqualRulesAreReportedSeparately(t *testing.T) {
	limit := int64(1 << 20)
	schemaProps := equalRules(2)
	wide := schemaProps.Properties["f0"]
	wide.MaxLength = &limit
	wide.XValidations = v1.ValidationRules{{Rule: "self.contains(self)"}}
	schemaProps.Properties["f0"] = wide
	narrow := schemaProps.Properties["f1"]
	narrow.XValidations = v1.ValidationRules{
		{Rule: "self.contains(self)"},
		{Rule: "self + 1"},
		{Rule: "self + 1"},
		{Rule: "true", MessageExpression: "self + 1"},
		{Rule: "self == oldSelf.orValue('')"},
		{Rule: "self == oldSelf.orValue('')", OptionalOldSelf: new(bool)},
	}
	*narrow.XValidations[5].OptionalOldSelf = true
	schemaProps.Properties["f1"] = narrow
	schemaProps.Properties["f2"] = v1.JSONSchemaProps{
		Type:         "integer",
		XValidations: v1.ValidationRules{{Rule: "self + 1"}, {Rule: "self + 1 > 0"}},
	}
	var got []string
	for _, e := range compiler.CheckSchema(rules.SchemaCheck{Schema: schemaProps, Path: field.NewPath("s")}) {
		detail, _, _ := strings.Cut(strings.NewReplacer("\n", " ").Replace(e.Detail), ":")
		got = append(got, strings.TrimPrefix(e.Field, "s.properties")+" "+detail)
	}
	want := []string{
		"[f0].x-kubernetes-validations[0].rule estimated rule cost exceeds budget by factor of more than 100x (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)",
		"[f1].x-kubernetes-validations[1].rule compilation failed",
		"[f1].x-kubernetes-validations[2].rule compilation failed",
		"[f1].x-kubernetes-validations[3].messageExpression messageExpression compilation failed",
		"[f1].x-kubernetes-validations[4].rule compilation failed",
		"[f2].x-kubernetes-validations[0].rule cel expression must evaluate to a bool",
		"[f0].x-kubernetes-validations[0].rule contributed to estimated rule cost total exceeding cost limit",
		"s x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema exceeds budget",
	}
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || !strings.HasPrefix(got[i], want[i]) {
			t.Fatalf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

// BenchmarkEqualRules measures rules that a definition has many times.
func BenchmarkEqualRules(b *testing.B) {
	for name, schemaProps := range map[string]*v1.JSONSchemaProps{"fields": equalRules(2000), "levels": nestedRules(200, 5000)} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				expectValid(b, schemaProps)
			}
		})
	}
}
