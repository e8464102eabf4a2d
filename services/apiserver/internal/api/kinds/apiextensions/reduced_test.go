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
func errorsOf(schemaProps *v1.JSONSchemaProps) (all []string) {
	path := field.NewPath("spec")
	schemaRules := &schemaRules{checker: &checker{cel: rules.NewCompiler()}, structural: true}
	var errs field.ErrorList
	if structural.Unsupported(schemaProps) != nil { // with several unsupported fields, the reported one is random
		all = append(all, "unsupported")
	} else {
		errs = schemaRules.checkStructure(path, schemaProps)
	}
	keywords := validate.CheckAt(path, func(fld validate.Field) { schemaRules.validateKeywords(fld, schemaProps, place{root: true}) })
	errs = append(append(errs, keywords...), schemaRules.cel.CheckSchema(rules.SchemaCheck{Schema: schemaProps, Path: path, KnownErrors: keywords})...)
	for _, e := range errs {
		all = append(all, e.Error())
	}
	return all
}

// addKeyword adds a keyword to a schema that the rules of definitions check. The value may be invalid.
func addKeyword(random *rand.Rand, schemaProps *v1.JSONSchemaProps) {
	text := func(choices ...string) *string { return ptr.To(choices[random.IntN(len(choices))]) }
	nested := v1.JSONSchemaProps{Type: *text("", "string", "object")}
	changes := []func(){
		func() { schemaProps.Type = *text("", "object", "array", "string", "null", "text") },
		func() { schemaProps.Pattern = *text("(", "^a$") },
		func() { schemaProps.Nullable = true },
		func() { schemaProps.Default = &v1.JSON{Raw: []byte(*text(`"a"`, `{}`, `1`))} },
		func() { schemaProps.XPreserveUnknownFields = ptr.To(random.IntN(3) > 0) },
		func() { schemaProps.XEmbeddedResource = true },
		func() { schemaProps.XIntOrString = true },
		func() { schemaProps.UniqueItems = true },
		func() { schemaProps.XListType = text("atomic", "set", "map", "list") },
		func() { schemaProps.XMapType = text("atomic", "granular", "map") },
		func() { schemaProps.XListMapKeys = []string{"a"} },
		func() { schemaProps.ID = "x" },
		func() { schemaProps.Ref = text("x") },
		func() { schemaProps.AnyOf = []v1.JSONSchemaProps{nested} },
		func() {
			schemaProps.AllOf = []v1.JSONSchemaProps{{Properties: map[string]v1.JSONSchemaProps{"a": nested}}}
		},
		func() { schemaProps.Not = &nested },
		func() {
			schemaProps.AdditionalProperties = &v1.JSONSchemaPropsOrBool{Allows: true, Schema: &nested}
		},
		func() { schemaProps.AdditionalProperties = &v1.JSONSchemaPropsOrBool{Allows: random.IntN(2) == 0} },
		func() { schemaProps.AdditionalItems = &v1.JSONSchemaPropsOrBool{} },
		func() { schemaProps.Dependencies = v1.JSONSchemaDependencies{"a": {}} },
		func() { schemaProps.Definitions = v1.JSONSchemaDefinitions{"a": nested} },
		func() { schemaProps.PatternProperties = map[string]v1.JSONSchemaProps{"a": nested} },
		func() { schemaProps.Items = nil },
		func() { schemaProps.Items = &v1.JSONSchemaPropsOrArray{Schema: &nested} },
		func() { schemaProps.Items = &v1.JSONSchemaPropsOrArray{JSONSchemas: []v1.JSONSchemaProps{nested}} },
		func() {
			schemaProps.XValidations = v1.ValidationRules{{
				Rule:      *text("true", "self.a == 'x'", "", "has(self.b) && self.b.c", "self == oldSelf"),
				FieldPath: *text("", ".a", ".b.c"),
			}}
		},
		func() { schemaProps.Required = []string{"a"} },
	}
	changes[random.IntN(len(changes))]()
}

// randomSchema returns a random schema, nested up to depth. One in twelve schemas at any
// level has a keyword of addKeyword.
func randomSchema(random *rand.Rand, depth int) v1.JSONSchemaProps {
	schemaProps := v1.JSONSchemaProps{
		Type:      []string{"string", "integer", "number", "boolean", "array", "object", "object", "object"}[random.IntN(8)],
		MaxLength: ptr.To[int64](9),
	}
	if depth == 0 {
		schemaProps.Type = "string"
	}
	switch schemaProps.Type {
	case "array":
		items := randomSchema(random, depth-1)
		schemaProps.Items = &v1.JSONSchemaPropsOrArray{Schema: &items}
	case "object":
		schemaProps.Properties = map[string]v1.JSONSchemaProps{}
		for range random.IntN(4) {
			schemaProps.Properties[[]string{"a", "b", "c", "metadata", "kind", "apiVersion"}[random.IntN(6)]] = randomSchema(random, depth-1)
		}
	}
	if random.IntN(12) == 0 {
		addKeyword(random, &schemaProps)
	}
	return schemaProps
}

// TestReducedSchemasHaveTheSameErrors checks that removing the parts that Minimize considers plain
// does not change the errors of a schema.
func TestReducedSchemasHaveTheSameErrors(t *testing.T) {
	random := rand.New(rand.NewPCG(20261123, 2))
	invalid, valid, smaller := 0, 0, 0
	for i := range 20_000 {
		schemaProps := v1.JSONSchemaProps{
			Type:       "object",
			Properties: map[string]v1.JSONSchemaProps{"spec": randomSchema(random, 3), "status": randomSchema(random, 2)},
		}
		if random.IntN(4) == 0 {
			schemaProps.Properties["metadata"] = randomSchema(random, 1)
		}
		if random.IntN(10) == 0 {
			addKeyword(random, &schemaProps)
		}
		reduced := structural.Minimize(&schemaProps)
		got, want := errorsOf(reduced), errorsOf(&schemaProps)
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("schema %d:\n%s\nreduced to:\n%s\ngot errors %q, want %q", i, schemaProps.AppendJSON(nil), reduced.AppendJSON(nil), got, want)
		}
		if len(want) > 0 {
			invalid++
		} else {
			valid++
		}
		if len(reduced.Properties) < len(schemaProps.Properties) {
			smaller++
		}
	}
	if invalid < 1_000 || valid < 1_000 || smaller < 1_000 {
		t.Errorf("got %d schemas with errors, %d without, %d reduced, want at least 1000 of each", invalid, valid, smaller)
	}
}
