package rules_test

import (
	"context"
	"encoding/json"
	"os"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/crd/rules"
	"binnacle/services/apiserver/internal/crd/schema"
	"binnacle/services/apiserver/internal/json/tape"
	v1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
)

// FuzzSchemasAndDocuments checks that no schema causes a panic, whether it is structural or not. It
// checks the same for an old and a new document. Normalizing a normalized document changes nothing.
func FuzzSchemasAndDocuments(f *testing.F) {
	for _, file := range []string{"crd-schema-lists-logic", "crd-schema-preserve", "crd-schema-defaults", "crd-cel-transitions"} {
		data, err := os.ReadFile("testdata/" + file + ".json")
		if err != nil {
			f.Fatal(err)
		}
		var recorded struct {
			Steps []struct {
				Schema map[string]json.RawMessage
				Doc    json.RawMessage
			}
		}
		if err := json.Unmarshal(data, &recorded); err != nil {
			f.Fatal(err)
		}
		var schemaText []byte
		for _, step := range recorded.Steps {
			if step.Schema != nil {
				schemaText = step.Schema["v1"]
			} else if step.Doc != nil {
				f.Add(schemaText, []byte(step.Doc), []byte(step.Doc))
			}
		}
	}
	f.Fuzz(func(t *testing.T, schemaText, data, oldText []byte) {
		var schemaProps v1.JSONSchemaProps
		if json.Unmarshal(schemaText, &schemaProps) != nil {
			return // not a schema
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		program, err := schema.Compile(&schemaProps)
		if err != nil {
			return // such a definition is rejected
		}
		found := schema.CheckDefaults(ctx, field.NewPath("s"), &schemaProps, true, compiler.CheckDefault)
		found = append(found, rules.CheckSyntax(field.NewPath("s"), &schemaProps)...)
		compiler.CheckSchema(rules.SchemaCheck{Schema: &schemaProps, Path: field.NewPath("s"), KnownErrors: found})
		doc, old := normalizeTwice(t, program, data), normalizeTwice(t, program, oldText)
		if doc == nil || old == nil {
			return // such a document is rejected
		}
		ruleSet := compiler.Compile(&schemaProps, program)
		const ratchets = true
		var notifiesCostly func() // nil: long checks need no notification
		for _, before := range []*tape.Doc{nil, old} {
			for _, e := range program.Check(doc, before, ratchets, notifiesCostly).All() {
				_ = e.Error()
			}
			program.CheckStatus(doc, before, ratchets, notifiesCostly)
			for _, e := range ruleSet.Evaluate(ctx, doc, before, func(string) {}, nil) {
				_ = e.Error()
			}
		}
	})
}

// normalizeTwice normalizes a document, checks that normalizing it again changes nothing, and
// returns it. It returns nil if the document is invalid.
func normalizeTwice(t *testing.T, program *schema.Program, data []byte) *tape.Doc {
	doc, err := tape.Parse(data)
	if err != nil {
		return nil
	}
	first, err := program.Normalize(doc, schema.NormalizeOptions{Unknown: true, DropMalformed: true})
	if err != nil {
		return nil
	}
	again, err := program.Normalize(first.Doc, schema.NormalizeOptions{DropMalformed: true})
	if err != nil {
		t.Fatalf("%s: %v", first.Doc.Raw(), err)
	}
	if !tape.Equal(first.Doc, tape.Root, again.Doc, tape.Root) {
		t.Fatalf("normalized twice: got %s, want it as after the first time, %s", again.Doc.Raw(), first.Doc.Raw())
	}
	return first.Doc
}
