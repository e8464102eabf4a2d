package schema

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"binnacle/services/apiserver/internal/json/tape"
	v1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
)

// sortInPlace sorts texts and returns them.
func sortInPlace(s []string) []string { slices.Sort(s); return s }

// parseDoc parses a JSON document that must be valid.
func parseDoc(t interface{ Fatalf(string, ...any) }, data []byte) *tape.Doc {
	doc, err := tape.Parse(data)
	if err != nil {
		t.Fatalf("%s: %v", data, err)
	}
	return doc
}

// TestProgramEqualsOracle compares the program with the oracle (oracle_test.go) for random schemas and
// objects.
func TestProgramEqualsOracle(t *testing.T) { rapid.Check(t, compareWithOracle) }

// FuzzProgramEqualsOracle searches for schemas and objects for which the program and the oracle
// differ.
func FuzzProgramEqualsOracle(f *testing.F) { f.Fuzz(rapid.MakeFuzz(compareWithOracle)) }

// compareWithOracle normalizes and checks a random object with a random schema, and compares the
// result with that of the oracle.
func compareWithOracle(t *rapid.T) {
	schemaProps := randomSchema(t, 3, true)
	program, err := Compile(&schemaProps)
	if err != nil {
		t.Fatal(err)
	}
	data, _ := json.Marshal(schemaProps)
	t.Logf("schema %s", data)
	doc := randomDoc(t, program, &schemaProps)
	text := doc.Raw()
	update := rapid.Bool().Draw(t, "update")
	var old *tape.Doc
	var oldTree any
	if update {
		old = doc
		if rapid.Bool().Draw(t, "other") {
			old = randomDoc(t, program, &schemaProps)
		} else if edited := changeValue(t, doc); edited != nil {
			old = edited
		}
		oldTree = decode(old.Raw())
	}
	want := oracleCheck(&schemaProps, decode(text), oldTree, update)
	got := errorTexts(program.Check(doc, old, ratchets, nil).Schema)
	if !slices.Equal(got, want) {
		t.Fatalf("document %s\ngot\n%s\nwant\n%s", text, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// randomDoc draws an object, normalizes it and compares the result.
func randomDoc(t *rapid.T, program *Program, schemaProps *v1.JSONSchemaProps) *tape.Doc {
	value := randomValue(t, schemaProps, 3)
	members, ok := value.(map[string]any)
	if !ok {
		members = map[string]any{"a": value}
	}
	members["apiVersion"], members["kind"], members["metadata"] = "g/v", "K", map[string]any{"name": "n", "odd": 1}
	var text strings.Builder
	writeRandomly(t, &text, members)
	data := []byte(text.String())
	t.Logf("object %s", data)
	doc := parseDoc(t, data)
	normalized, err := program.Normalize(doc, NormalizeOptions{Unknown: true})
	if err != nil {
		t.Fatal(err)
	}
	want, unknown := oracleNormalize(data, schemaProps)
	if got := canonical(decode(normalized.Doc.Raw())); got != canonical(want) {
		t.Fatalf("Normalize(%s): got\n%swant\n%s", data, got, canonical(want))
	}
	if !slices.Equal(normalized.Unknown, unknown) {
		t.Fatalf("Normalize(%s): got unknown fields %q, want %q", data, normalized.Unknown, unknown)
	}
	if same := canonical(decode(data)) == canonical(want); same && normalized.Changed {
		t.Fatalf("Normalize(%s) = %s, marked as changed; want it unchanged", data, normalized.Doc.Raw())
	}
	if !normalized.Changed && !bytes.Equal(normalized.Doc.Raw(), data) {
		t.Fatalf("Normalize(%s) = %s, not marked as changed; want it marked", data, normalized.Doc.Raw())
	}
	again, err := program.Normalize(normalized.Doc, NormalizeOptions{Unknown: true})
	if err != nil || again.Changed {
		t.Fatalf("Normalize(%s) = %s, %v; want it unchanged", normalized.Doc.Raw(), again.Doc.Raw(), err)
	}
	return normalized.Doc
}

// changeValue changes one of some values of a document, if present.
func changeValue(t *rapid.T, doc *tape.Doc) *tape.Doc {
	change := pick(t, "edit", []string{`"a"`, `"b"`}, []string{`1`, `2`}, []string{`true`, `false`}, []string{`2.5`, `3`})
	data := bytes.Replace(doc.Raw(), []byte(change[0]), []byte(change[1]), 1)
	edited, err := tape.Parse(data)
	if err != nil || !edited.Clean() {
		return nil
	}
	return edited
}
