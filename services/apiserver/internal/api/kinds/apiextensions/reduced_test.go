package apiextensions

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"binnacle/services/apiserver/internal/crd/rules"
	"binnacle/services/apiserver/internal/crd/structural"
	v1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
	"binnacle/services/apiserver/internal/registry/validate"
)

// errorsOf returns the errors that check finds in a schema.
func errorsOf(s *v1.JSONSchemaProps) (all []string) {
	path := field.NewPath("spec")
	r := &schemaRules{checker: &checker{cel: rules.NewCompiler()}, structural: true}
	var errs field.ErrorList
	if structural.Unsupported(s) != nil { // with several unsupported fields, the reported one is random
		all = append(all, "unsupported")
	} else {
		errs = r.checkStructure(path, s)
	}
	keywords := validate.CheckAt(path, func(fld validate.Field) { r.validateKeywords(fld, s, place{root: true}) })
	errs = append(append(errs, keywords...), r.cel.CheckSchema(rules.SchemaCheck{Schema: s, Path: path, KnownErrors: keywords})...)
	for _, e := range errs {
		all = append(all, e.Error())
	}
	return all
}

// makeOdd adds something to a schema that the rules of definitions check. Some of it is invalid.
func makeOdd(r *rand.Rand, s *v1.JSONSchemaProps) {
	text := func(choices ...string) *string { return ptr.To(choices[r.IntN(len(choices))]) }
	nested := v1.JSONSchemaProps{Type: *text("", "string", "object")}
	changes := []func(){
		func() { s.Type = *text("", "object", "array", "string", "null", "text") },
		func() { s.Pattern = *text("(", "^a$") },
		func() { s.Nullable = true },
		func() { s.Default = &v1.JSON{Raw: []byte(*text(`"a"`, `{}`, `1`))} },
		func() { s.XPreserveUnknownFields = ptr.To(r.IntN(3) > 0) },
		func() { s.XEmbeddedResource = true },
		func() { s.XIntOrString = true },
		func() { s.UniqueItems = true },
		func() { s.XListType = text("atomic", "set", "map", "list") },
		func() { s.XMapType = text("atomic", "granular", "map") },
		func() { s.XListMapKeys = []string{"a"} },
		func() { s.ID = "x" },
		func() { s.Ref = text("x") },
		func() { s.AnyOf = []v1.JSONSchemaProps{nested} },
		func() { s.AllOf = []v1.JSONSchemaProps{{Properties: map[string]v1.JSONSchemaProps{"a": nested}}} },
		func() { s.Not = &nested },
		func() { s.AdditionalProperties = &v1.JSONSchemaPropsOrBool{Allows: true, Schema: &nested} },
		func() { s.AdditionalProperties = &v1.JSONSchemaPropsOrBool{Allows: r.IntN(2) == 0} },
		func() { s.AdditionalItems = &v1.JSONSchemaPropsOrBool{} },
		func() { s.Dependencies = v1.JSONSchemaDependencies{"a": {}} },
		func() { s.Definitions = v1.JSONSchemaDefinitions{"a": nested} },
		func() { s.PatternProperties = map[string]v1.JSONSchemaProps{"a": nested} },
		func() { s.Items = nil },
		func() { s.Items = &v1.JSONSchemaPropsOrArray{Schema: &nested} },
		func() { s.Items = &v1.JSONSchemaPropsOrArray{JSONSchemas: []v1.JSONSchemaProps{nested}} },
		func() {
			s.XValidations = v1.ValidationRules{{
				Rule:      *text("true", "self.a == 'x'", "", "has(self.b) && self.b.c", "self == oldSelf"),
				FieldPath: *text("", ".a", ".b.c"),
			}}
		},
		func() { s.Required = []string{"a"} },
	}
	changes[r.IntN(len(changes))]()
}

// randomSchema returns a random schema, nested up to depth. One in twelve schemas at any level is odd.
func randomSchema(r *rand.Rand, depth int) v1.JSONSchemaProps {
	s := v1.JSONSchemaProps{
		Type:      []string{"string", "integer", "number", "boolean", "array", "object", "object", "object"}[r.IntN(8)],
		MaxLength: ptr.To[int64](9),
	}
	if depth == 0 {
		s.Type = "string"
	}
	switch s.Type {
	case "array":
		items := randomSchema(r, depth-1)
		s.Items = &v1.JSONSchemaPropsOrArray{Schema: &items}
	case "object":
		s.Properties = map[string]v1.JSONSchemaProps{}
		for range r.IntN(4) {
			s.Properties[[]string{"a", "b", "c", "metadata", "kind", "apiVersion"}[r.IntN(6)]] = randomSchema(r, depth-1)
		}
	}
	if r.IntN(12) == 0 {
		makeOdd(r, &s)
	}
	return s
}

// TestReducedSchemasHaveTheSameErrors checks that removing plain parts of a schema does not change
// its errors.
func TestReducedSchemasHaveTheSameErrors(t *testing.T) {
	r := rand.New(rand.NewPCG(20261123, 2))
	invalid, valid, smaller := 0, 0, 0
	for i := range 20_000 {
		s := v1.JSONSchemaProps{
			Type:       "object",
			Properties: map[string]v1.JSONSchemaProps{"spec": randomSchema(r, 3), "status": randomSchema(r, 2)},
		}
		if r.IntN(4) == 0 {
			s.Properties["metadata"] = randomSchema(r, 1)
		}
		if r.IntN(10) == 0 {
			makeOdd(r, &s)
		}
		reduced := structural.Minimize(&s)
		got, want := errorsOf(reduced), errorsOf(&s)
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("schema %d:\n%s\nreduced to:\n%s\ngot errors %q, want %q", i, s.AppendJSON(nil), reduced.AppendJSON(nil), got, want)
		}
		if len(want) > 0 {
			invalid++
		} else {
			valid++
		}
		if len(reduced.Properties) < len(s.Properties) {
			smaller++
		}
	}
	if invalid < 1_000 || valid < 1_000 || smaller < 1_000 {
		t.Errorf("got %d schemas with errors, %d without, %d reduced, want at least 1000 of each", invalid, valid, smaller)
	}
}
