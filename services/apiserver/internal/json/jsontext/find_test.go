package jsontext_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"binnacle/services/apiserver/internal/json/jsontext"
)

// TestFindReturnsValueAtPath checks the values at paths of one document. A path that leads nowhere has no value.
func TestFindReturnsValueAtPath(t *testing.T) {
	const doc = ` {"a": {"b": [10, {"c":"x"}, null], "q\"uo\u0074e": true}, "s": "} \" ]", "e": {}, "l": [], "n": -1.5e3 ,"twice":{"x":1}, "twice":{"y":2}} `
	element := func(i int) jsontext.Step { return jsontext.Step{Element: true, Index: i} }
	tests := []struct {
		path jsontext.Path
		want string
	}{
		{path: jsontext.Path{}, want: strings.TrimSpace(doc)},
		{path: jsontext.Fields("s"), want: `"} \" ]"`},
		{path: jsontext.Fields("n"), want: "-1.5e3"},
		{path: jsontext.Fields("a", `q"uote`), want: "true"},
		{path: jsontext.Fields("a", "b"), want: `[10, {"c":"x"}, null]`},
		{path: jsontext.Path{{Name: "a"}, {Name: "b"}, element(1), {Name: "c"}}, want: `"x"`},
		{path: jsontext.Path{{Name: "a"}, {Name: "b"}, element(2)}, want: "null"},
		{path: jsontext.Path{{Name: "a"}, {Name: "b"}, element(7)}, want: ""},
		{path: jsontext.Fields("a", "b", "c"), want: ""},
		{path: jsontext.Fields("s", "x"), want: ""},
		{path: jsontext.Fields("missing", "x"), want: ""},
		{path: jsontext.Fields("twice", "x"), want: ""},
		{path: jsontext.Fields("twice", "y"), want: "2"},
	}
	var paths []jsontext.Path
	for _, test := range tests {
		paths = append(paths, test.path)
	}
	got, err := jsontext.Compile(paths...).Find([]byte(doc), nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, test := range tests {
		if string(got[i]) != test.want {
			t.Errorf("value at %v = %q, want %q", test.path, got[i], test.want)
		}
	}
}

// TestMalformedDocumentIsRejected checks that Find returns an error if the text on the way to the
// wanted values is not JSON.
func TestMalformedDocumentIsRejected(t *testing.T) {
	set := jsontext.Compile(jsontext.Fields("a", "b"), jsontext.Path{{Name: "l"}, {Element: true, Index: 3}})
	for _, doc := range []string{
		`{`, `{"a"`, `{"a":`, `{"a":{"b":1}`, `{"a":{"b":"1}}`, `{"a" 1}`, `{a:1}`, `{"x":1 "a":2}`,
		`{"l":[1,,2]}`, `{"l":[1 2]}`, `{"l":[`,
	} {
		if _, err := set.Find([]byte(doc), nil); err == nil {
			t.Errorf("Find(%s): got no error, want one", doc)
		}
	}
}

// randomJSON draws a value as decoded by encoding/json.
func randomJSON(depth int) *rapid.Generator[any] {
	return rapid.Custom(func(t *rapid.T) any {
		maxKind := 5 // lists and objects only above the last level
		if depth == 0 {
			maxKind = 3
		}
		switch rapid.IntRange(0, maxKind).Draw(t, "kind") {
		case 0:
			return rapid.StringMatching(`[a-c"\\{}\[\]é, :]{0,5}`).Draw(t, "text")
		case 1:
			return rapid.Float64Range(-1e6, 1e6).Draw(t, "number")
		case 2:
			return rapid.Bool().Draw(t, "bool")
		case 3:
			return nil
		case 4:
			return rapid.SliceOfN(randomJSON(depth-1), 0, 3).Draw(t, "list")
		default:
			return map[string]any(rapid.MapOfN(name, randomJSON(depth-1), 0, 4).Draw(t, "object"))
		}
	})
}

var name = rapid.SampledFrom([]string{"a", "b", `"`, `\`, "{", "é"})

// TestFindMatchesDecoding checks that Find returns what a walk through the decoded document finds.
func TestFindMatchesDecoding(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		doc := map[string]any(rapid.MapOfN(name, randomJSON(3), 0, 4).Draw(t, "doc"))
		raw, err := json.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		paths := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) jsontext.Path {
			return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) jsontext.Step {
				if rapid.Bool().Draw(t, "element") {
					return jsontext.Step{Element: true, Index: rapid.IntRange(0, 3).Draw(t, "index")}
				}
				return jsontext.Step{Name: name.Draw(t, "name")}
			}), 1, 4).Draw(t, "path")
		}), 1, 6).Draw(t, "paths")
		got, err := jsontext.Compile(paths...).Find(raw, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i, path := range paths {
			want, ok := walk(doc, path)
			if !ok {
				if got[i] != nil {
					t.Fatalf("%v in %s: got %s, want nothing", path, raw, got[i])
				}
				continue
			}
			var found any
			if err := json.Unmarshal(got[i], &found); err != nil {
				t.Fatalf("%v in %s: %q: %v", path, raw, got[i], err)
			}
			if encoded, err := json.Marshal(want); err != nil || json.Unmarshal(encoded, &want) != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(found, want) {
				t.Fatalf("%v in %s: got %s, want %v", path, raw, got[i], want)
			}
		}
	})
}

// walk returns the value at a path of a decoded document.
func walk(value any, p jsontext.Path) (any, bool) {
	for _, step := range p {
		switch node := value.(type) {
		case map[string]any:
			var ok bool
			value, ok = node[step.Name]
			if !ok || step.Element {
				return nil, false
			}
		case []any:
			if !step.Element || step.Index >= len(node) {
				return nil, false
			}
			value = node[step.Index]
		default:
			return nil, false
		}
	}
	return value, true
}

// FuzzFind checks that Find terminates, and that it returns valid values from valid documents.
func FuzzFind(f *testing.F) {
	f.Add([]byte(`{"a":{"b":[1,2]}}`))
	f.Add([]byte(`{"a":"\\\""}`))
	f.Add([]byte(`[`))
	set := jsontext.Compile(jsontext.Fields("a", "b"), jsontext.Path{{Name: "a"}, {Name: "b"}, {Element: true, Index: 1}})
	f.Fuzz(func(t *testing.T, doc []byte) {
		got, err := set.Find(doc, nil)
		if !json.Valid(doc) {
			return // must only terminate
		}
		if err != nil {
			t.Fatalf("%q: %v", doc, err)
		}
		for _, value := range got {
			if value != nil && !json.Valid(value) {
				t.Fatalf("%q: found %q, want valid JSON", doc, value)
			}
		}
	})
}

// TestPutSetsValueAtPath checks where Put inserts or replaces a value, and its errors.
func TestPutSetsValueAtPath(t *testing.T) {
	for _, test := range []struct {
		doc  string
		path []string
		want string
	}{
		{doc: `{"a":1}`, path: []string{"a"}, want: `{"a":5}`},
		{doc: `{"b":1}`, path: []string{"a"}, want: `{"a":5,"b":1}`},
		{doc: `{"a":1}`, path: []string{"b"}, want: `{"a":1,"b":5}`},
		{doc: `{ "a" : 1 , "c" : 2 }`, path: []string{"b"}, want: `{ "a" : 1 , "b":5,"c" : 2 }`},
		{doc: `{}`, path: []string{"a", "b", "c"}, want: `{"a":{"b":{"c":5}}}`},
		{doc: ` { } `, path: []string{"a"}, want: ` { "a":5} `},
		{doc: `{"a":{"b":{}},"z":"}"}`, path: []string{"a", "b", "c"}, want: `{"a":{"b":{"c":5}},"z":"}"}`},
		{doc: `{"a":{"c":[1]}}`, path: []string{"a", "b"}, want: `{"a":{"b":5,"c":[1]}}`},
		{doc: `{"a":1,"a":2}`, path: []string{"a"}, want: `{"a":1,"a":5}`},
		{doc: `{"\u0061":1}`, path: []string{"a"}, want: `{"\u0061":5}`},
		{doc: `{"a":null}`, path: []string{"a", "b"}, want: "value cannot be set because .a is not a map[string]interface{}"},
		{
			doc:  `{"a":{"b":"x"}}`,
			path: []string{"a", "b", "c"},
			want: "value cannot be set because .a.b is not a map[string]interface{}",
		},
		{doc: `{"a":`, path: []string{"a"}, want: jsontext.ErrMalformed.Error()},
	} {
		got, err := jsontext.Put([]byte(test.doc), []byte("5"), test.path...)
		if err != nil {
			got = []byte(err.Error())
		}
		if string(got) != test.want {
			t.Errorf("Put(%s, 5, %v) = %s, want %s", test.doc, test.path, got, test.want)
		}
	}
}

// TestPutChangesOnlyThePath checks that all other values are unchanged.
func TestPutChangesOnlyThePath(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		doc := map[string]any(rapid.MapOfN(name, randomJSON(3), 0, 4).Draw(t, "doc"))
		raw, err := json.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		path := rapid.SliceOfN(name, 1, 3).Draw(t, "path")
		got, err := jsontext.Put(raw, []byte(`"new"`), path...)
		at, ok := doc, true
		for _, p := range path[:len(path)-1] {
			if at[p] == nil {
				if _, null := at[p]; null {
					ok = false
					break
				}
				at[p] = map[string]any{}
			}
			if at, ok = at[p].(map[string]any); !ok {
				break
			}
		}
		if (err == nil) != ok {
			t.Fatalf("%v in %s: got error %v, want one: %t", path, raw, err, !ok)
		}
		if !ok {
			return
		}
		at[path[len(path)-1]] = "new"
		want, err := json.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != string(want) {
			t.Fatalf("%v in %s: got %s, want %s", path, raw, got, want)
		}
	})
}
