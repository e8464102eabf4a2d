package apply

import (
	"fmt"
	"math/rand"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v4/typed"

	"binnacle/services/apiserver/internal/registry"
)

// documentRules use every kind of merge rule.
const documentRules = `types:
- name: thing
  map:
    fields:
    - {name: apiVersion, type: {scalar: string}}
    - {name: kind, type: {scalar: string}}
    - {name: metadata, type: {namedType: any}}
    - {name: spec, type: {namedType: spec}}
- name: spec
  map:
    fields:
    - {name: text, type: {scalar: string}}
    - {name: number, type: {scalar: numeric}}
    - {name: truth, type: {scalar: boolean}}
    - {name: anything, type: {scalar: untyped}}
    - {name: free, type: {namedType: any}}
    - {name: nested, type: {namedType: spec}}
    - {name: whole, type: {map: {elementRelationship: atomic, elementType: {namedType: spec}}}}
    - {name: table, type: {map: {elementType: {scalar: numeric}}}}
    - {name: list, type: {list: {elementRelationship: atomic, elementType: {namedType: spec}}}}
    - {name: set, type: {list: {elementRelationship: associative, elementType: {scalar: untyped}}}}
    - name: parts
      type: {list: {elementRelationship: associative, keys: [text, number], elementType: {namedType: spec}}}
- name: any
  scalar: untyped
  list: {elementRelationship: atomic, elementType: {namedType: any}}
  map: {elementType: {namedType: any}, elementRelationship: separable}
`

// documentGenerator generates specs. Most are valid.
type documentGenerator struct{ *rand.Rand }

func (d documentGenerator) drawScalar() any {
	return []any{"a", "b", "", int64(d.Intn(3)), 0.5, true, false}[d.Intn(7)]
}

func (d documentGenerator) drawAny(depth int) any {
	switch d.Intn(6) {
	case 0:
		return nil
	case 1:
		out := []any{}
		for range d.Intn(3) * min(depth, 1) {
			out = append(out, d.drawAny(depth-1))
		}
		return out
	case 2:
		out := map[string]any{}
		for i := range d.Intn(3) * min(depth, 1) {
			out[fmt.Sprint("x", i)] = d.drawAny(depth - 1)
		}
		return out
	}
	return d.drawScalar()
}

// drawSpec returns a random object with fields of all merge rules.
func (d documentGenerator) drawSpec(depth int) map[string]any {
	content := map[string]any{}
	if depth == 0 {
		return content
	}
	for name, drawElement := range map[string]func() any{
		"text": func() any { return []any{"a", "b", "c"}[d.Intn(3)] }, "number": func() any { return []any{int64(1), 1.5}[d.Intn(2)] },
		"truth": func() any { return d.Intn(2) == 0 }, "anything": d.drawScalar,
		"free": func() any { return d.drawAny(3) }, "nested": func() any { return d.drawSpec(depth - 1) },
		"whole": func() any { return map[string]any{"p": d.drawSpec(depth - 1), "q": d.drawSpec(depth - 1)} },
		"table": func() any { return map[string]any{"p": int64(1), "q": 2.5} },
		"list":  func() any { return []any{d.drawSpec(depth - 1), d.drawSpec(depth - 1)} },
		"set":   func() any { return []any{"a", int64(4), d.drawScalar()} },
		"parts": func() any {
			out := []any{}
			for i := range d.Intn(3) {
				part := d.drawSpec(depth - 1)
				part["text"], part["number"] = fmt.Sprint(i-i*d.Intn(2)), int64(1)
				out = append(out, part)
			}
			return out
		},
		"unknown": func() any { return "x" },
	} {
		often := 3
		if name == "unknown" {
			often = 200
		}
		if d.Intn(often) > 0 {
			continue
		}
		content[name] = drawElement()
		switch d.Intn(100) {
		case 0:
			content[name] = nil
		case 1:
			content[name] = d.drawAny(2) // may be invalid
		}
	}
	return content
}

// drawMixed returns a document with parts of both.
func (d documentGenerator) drawMixed(a, b any) any {
	switch x := a.(type) {
	case map[string]any:
		if y, ok := b.(map[string]any); ok {
			mixed := map[string]any{}
			for name, value := range x {
				w, both := y[name]
				switch {
				case both:
					mixed[name] = d.drawMixed(value, w)
				case d.Intn(4) > 0:
					mixed[name] = value
				}
			}
			for name, w := range y {
				if _, both := x[name]; !both && d.Intn(4) == 0 {
					mixed[name] = w
				}
			}
			return mixed
		}
	case []any:
		if y, ok := b.([]any); ok && d.Intn(2) == 0 {
			return append(slices.Clone(x[:d.Intn(len(x)+1)]), y[:d.Intn(len(y)+1)]...)
		}
	case int64:
		if d.Intn(20) == 0 {
			return float64(x)
		}
	}
	if d.Intn(3) == 0 {
		return b
	}
	return a
}

// TestDocumentDifferencesMatchTheMergeLibrary includes differences from an empty document.
func TestDocumentDifferencesMatchTheMergeLibrary(t *testing.T) {
	for name, rules := range map[string]typed.YAMLObject{"with rules": documentRules, "without": ""} {
		manager := newCustomManager(t, rules)
		d := documentGenerator{rand.New(rand.NewSource(1))}
		usual, unusual, same := 0, 0, 0
		for i := range 8000 {
			spec := d.drawSpec(4)
			obj := &unstructured.Unstructured{Object: newThing(spec)}
			var live registry.Object
			empty := manager.kind.New().(registry.Object)
			against := empty
			if i%4 > 0 {
				other, _ := d.drawMixed(spec, d.drawSpec(4)).(map[string]any)
				object := &unstructured.Unstructured{Object: newThing(other)}
				object.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "x"}})
				live = object
				against = object
			}
			got, ok := manager.documentDifferences(live, obj)
			want, err := manager.typedDifferences(against, obj)
			if !ok {
				unusual++
				continue
			}
			usual++
			if err != nil {
				t.Fatalf("%s, %d: %v and %v: got unexpected error %v", name, i, live, obj.Object, err)
			}
			if want.set.Empty() && want.removed.Empty() {
				same++
			}
			if !got.set.Equals(want.set) || !got.removed.Equals(want.removed) {
				t.Fatalf("%s, %d: got %v\n%v\nset\n%s\nwant\n%s\nremoved\n%s\nwant\n%s", name, i, live,
					obj.Object, got.set, want.set, got.removed, want.removed)
			}
		}
		if usual < 4000 || unusual < 100 && rules != "" || same > usual/2 {
			t.Errorf(
				"%s: got %d valid pairs, %d of them equal, and %d others, want at least 4000, at most half equal, and at least 100 others with rules",
				name,
				usual,
				same,
				unusual,
			)
		}
	}
}
