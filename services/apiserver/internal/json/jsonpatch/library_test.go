package jsonpatch_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	library "gopkg.in/evanphx/json-patch.v4"

	"binnacle/services/apiserver/internal/json/jsonpatch"
)

// applyWithLibrary applies a patch with the library that Kubernetes uses. If panics is true, there
// is no result to compare with.
func applyWithLibrary(doc, patch []byte) (out []byte, err error, panics bool) {
	defer func() { panics = recover() != nil }()
	decoded, err := library.DecodePatch(patch)
	if err != nil {
		return nil, err, false
	}
	out, err = decoded.Apply(doc)
	return out, err, false
}

// applyWithPackage applies a patch with the package under test.
func applyWithPackage(doc, patch []byte) ([]byte, error) {
	decoded, err := jsonpatch.Decode(patch)
	if err != nil {
		return nil, err
	}
	return jsonpatch.Apply(doc, decoded)
}

// compareWithLibrary fails the test if package and library differ in the result or error of a
// patch. It returns true if the patch was applied.
func compareWithLibrary(t *testing.T, doc, patch []byte) (applied bool) {
	t.Helper()
	want, wantErr, panics := applyWithLibrary(doc, patch)
	got, err := applyWithPackage(doc, patch)
	switch {
	case panics:
	case (err == nil) != (wantErr == nil), err != nil && err.Error() != wantErr.Error():
		t.Errorf("%s of %s: got %v, want %v", patch, doc, err, wantErr)
	case err != nil && errors.Is(wantErr, library.ErrTestFailed) != errors.Is(err, jsonpatch.ErrTestFailed):
		t.Errorf("%s of %s: got error %v, want the kind of %v", patch, doc, err, wantErr)
	case err == nil && !reflect.DeepEqual(decodeTree(t, got), decodeTree(t, want)):
		t.Errorf("%s of %s: got %s, want %s", patch, doc, got, want)
	}
	return err == nil
}

// decodeTree decodes a document without loss of precision.
func decodeTree(t *testing.T, doc []byte) (value any) {
	t.Helper()
	decoder := json.NewDecoder(bytes.NewReader(doc))
	decoder.UseNumber()
	if err := decoder.Decode(&value); err != nil {
		t.Fatalf("%s: %v", doc, err)
	}
	return value
}

// generator draws random documents and paths that often match.
type generator struct {
	*rand.Rand
	nulls bool // whether value may return null
}

// value returns a value of at most the given depth.
func (d generator) value(depth int) any {
	choice := d.IntN(10)
	switch {
	case choice < 4 && depth > 0:
		members := map[string]any{}
		for range d.IntN(4) {
			members[d.name()] = d.value(depth - 1)
		}
		return members
	case choice < 7 && depth > 0:
		list := make([]any, d.IntN(4))
		for i := range list {
			list[i] = d.value(depth - 1)
		}
		return list
	case choice == 7:
		return d.IntN(3)
	case choice == 8:
		return []string{"", "<x>", "é", `"\`}[d.IntN(4)]
	}
	if d.nulls && d.IntN(2) == 0 {
		return nil
	}
	return d.IntN(2) == 0
}

// name returns the name of a member.
func (d generator) name() string { return []string{"a", "b", "a/b", "~", "", "0", "é"}[d.IntN(7)] }

// path returns a JSON pointer of up to three parts.
func (d generator) path() (path string) {
	for range 1 + d.IntN(3) {
		if d.IntN(3) > 0 {
			path += "/" + []string{"a", "b", "0"}[d.IntN(3)]
			continue
		}
		path += "/" + []string{"a~1b", "~0", "", "1", "2", "-", "-1", "-2", "é", "9", "x"}[d.IntN(11)]
	}
	if d.IntN(20) == 0 {
		return ""
	}
	return path
}

// TestApplyMatchesLibrary compares results and errors of random patches with those of the library.
func TestApplyMatchesLibrary(t *testing.T) {
	documents := generator{Rand: rand.New(rand.NewPCG(1, 2))}
	applied := 0
	const patches = 40_000
	for range patches {
		documents.nulls = documents.IntN(2) == 0
		root := map[string]any{"a": documents.value(3), "b": documents.value(3), "0": []any{documents.value(2), documents.value(1)}}
		doc, _ := json.Marshal(root)
		ops := make([]map[string]any, 1+documents.IntN(5))
		for i := range ops {
			kind := []string{"add", "remove", "replace", "move", "copy", "test", "add", "copy", "other"}[documents.IntN(9)]
			ops[i] = map[string]any{"op": kind, "path": documents.path()}
			if kind == "move" || kind == "copy" {
				ops[i]["from"] = documents.path()
			}
			documents.nulls = kind == "test"
			if kind == "add" || kind == "replace" || kind == "test" {
				ops[i]["value"] = documents.value(2)
			}
			if documents.IntN(60) == 0 {
				delete(ops[i], []string{"op", "path", "from"}[documents.IntN(3)])
			}
		}
		patch, _ := json.Marshal(ops)
		if compareWithLibrary(t, doc, patch) {
			applied++
		}
		if t.Failed() {
			return
		}
	}
	if applied < patches/20 {
		t.Errorf("%d of %d patches were applied, want at least 1 in 20", applied, patches)
	}
}

// FuzzApply compares results and errors with those of the library.
func FuzzApply(f *testing.F) {
	for _, patch := range []string{
		`[{"op":"add","path":"/a/0","value":{"x":[1]}},{"op":"move","from":"/a/0/x","path":"/b"}]`,
		`[{"op":"copy","from":"/a","path":"/c"},{"op":"test","path":"","value":{}}]`,
		`[{"op":"replace","path":"","value":[]},{"op":"remove","path":"/-1"}]`,
	} {
		f.Add([]byte(`{"a":[1,{"b":"\u003c"}],"b":{"c":0.10}}`), []byte(patch))
	}
	f.Fuzz(func(t *testing.T, doc, patch []byte) {
		if !json.Valid(doc) || doc[0] != '{' && doc[0] != '[' || !json.Valid(patch) ||
			bytes.Contains(doc, []byte("null")) || bytes.Contains(patch, []byte("null")) ||
			len(doc)+len(patch) > 10_000 {
			_, _ = applyWithPackage(doc, patch)
			return // the library treats nulls inconsistently
		}
		compareWithLibrary(t, doc, patch)
	})
}

// BenchmarkAddToDeepDocument changes a value deep in a large document.
func BenchmarkAddToDeepDocument(b *testing.B) {
	const depth = 480
	doc := []byte(nestedWith(depth, fmt.Sprintf(`"x":%q`, bytes.Repeat([]byte("x"), 1<<20))))
	path := string(bytes.Repeat([]byte("/a"), depth)) + "/q"
	for b.Loop() {
		if _, err := applyWithPackage(doc, []byte(`[{"op":"add","path":"`+path+`","value":1}]`)); err != nil {
			b.Fatal(err)
		}
	}
}

func nestedWith(depth int, inside string) string {
	return string(bytes.Repeat([]byte(`{"a":`), depth)) + "{" + inside + "}" + string(bytes.Repeat([]byte("}"), depth))
}
