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

func sorted(s []string) []string { slices.Sort(s); return s }

func parse(t interface{ Fatalf(string, ...any) }, data []byte) *tape.Doc {
	d, err := tape.Parse(data)
	if err != nil {
		t.Fatalf("%s: %v", data, err)
	}
	return d
}

// TestProgramEqualsReferenceChecker compares the program with the plain implementation on trees,
// for random schemas and objects.
func TestProgramEqualsReferenceChecker(t *testing.T) { rapid.Check(t, differential) }

func FuzzAgainstTree(f *testing.F) { f.Fuzz(rapid.MakeFuzz(differential)) }

func differential(t *rapid.T) {
	s := randomSchema(t, 3, true)
	p, err := Compile(&s)
	if err != nil {
		t.Fatal(err)
	}
	data, _ := json.Marshal(s)
	t.Logf("schema %s", data)
	d := randomDoc(t, p, &s)
	shapedText := d.Raw()
	update := rapid.Bool().Draw(t, "update")
	var old *tape.Doc
	var oldTree any
	if update {
		old = d
		if rapid.Bool().Draw(t, "other") {
			old = randomDoc(t, p, &s)
		} else if edited := edit(t, d); edited != nil {
			old = edited
		}
		oldTree = decode(old.Raw())
	}
	want := oracleCheck(&s, decode(shapedText), oldTree, update)
	got := texts(p.Check(d, old, true, nil).Schema)
	if !slices.Equal(got, want) {
		t.Fatalf("document %s\ngot\n%s\nwant\n%s", shapedText, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// randomDoc draws an object, shapes it and compares the result.
func randomDoc(t *rapid.T, p *Program, s *v1.JSONSchemaProps) *tape.Doc {
	value := randomValue(t, s, 3)
	m, ok := value.(map[string]any)
	if !ok {
		m = map[string]any{"a": value}
	}
	m["apiVersion"], m["kind"], m["metadata"] = "g/v", "K", map[string]any{"name": "n", "odd": 1}
	var b strings.Builder
	write(t, &b, m)
	data := []byte(b.String())
	t.Logf("object %s", data)
	d := parse(t, data)
	shaped, err := p.Normalize(d, NormalizeOptions{Unknown: true})
	if err != nil {
		t.Fatal(err)
	}
	want, unknown := oracleShape(data, s)
	if got := canonical(decode(shaped.Doc.Raw())); got != canonical(want) {
		t.Fatalf("got  %swant %s", got, canonical(want))
	}
	if !slices.Equal(shaped.Unknown, unknown) {
		t.Fatalf("unknown: got %q, want %q", shaped.Unknown, unknown)
	}
	if same := canonical(decode(data)) == canonical(want); same && shaped.Changed {
		t.Fatalf("got a new document without a change")
	}
	if !shaped.Changed && !bytes.Equal(shaped.Doc.Raw(), data) {
		t.Fatal("got a changed document without the changed flag")
	}
	again, err := p.Normalize(shaped.Doc, NormalizeOptions{Unknown: true})
	if err != nil || again.Changed {
		t.Fatalf("shaped twice: %s, %v", again.Doc.Raw(), err)
	}
	return shaped.Doc
}

// edit changes one of some values of a document, if present.
func edit(t *rapid.T, d *tape.Doc) *tape.Doc {
	change := pick(t, "edit", []string{`"a"`, `"b"`}, []string{`1`, `2`}, []string{`true`, `false`}, []string{`2.5`, `3`})
	data := bytes.Replace(d.Raw(), []byte(change[0]), []byte(change[1]), 1)
	edited, err := tape.Parse(data)
	if err != nil || !edited.Clean() {
		return nil
	}
	return edited
}
