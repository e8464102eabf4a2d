package apply

import (
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/structured-merge-diff/v4/typed"

	"binnacle/services/apiserver/internal/registry"
)

// newCustomManager returns the manager of a kind without a Go type. rules are the merge rules in the form of
// the merge library, or empty.
func newCustomManager(t testing.TB, rules typed.YAMLObject) *Manager {
	t.Helper()
	kind := &registry.Kind{
		Names: registry.Names{
			Group:    "example.org",
			Version:  "v1",
			Resource: "things",
			Kind:     "Thing",
		},
		New:     func() runtime.Object { return &unstructured.Unstructured{Object: map[string]any{}} },
		NewList: func() runtime.Object { return &unstructured.UnstructuredList{} },
		Stored:  registry.StorageForm{Prefix: "example.org/things"},
	}
	if rules != "" {
		parser, err := typed.NewParser(rules)
		if err != nil {
			t.Fatal(err)
		}
		kind.MergeType = func() typed.ParseableType { return parser.Type("thing") }
	}
	catalog, err := registry.NewCatalog([]registry.Group{{Name: "example.org", Versions: []string{"v1"}}}, []*registry.Kind{kind})
	if err != nil {
		t.Fatal(err)
	}
	return New(catalog, time.Now).Manager(kind, nil)
}

func newThing(spec map[string]any) map[string]any {
	return map[string]any{"apiVersion": "example.org/v1", "kind": "Thing", "metadata": map[string]any{"name": "a"}, "spec": spec}
}

// TestObjectsWithoutGoTypeMergeByRules checks that objects without a Go type are merged by their rules. Without
// rules, maps merge by key and lists are atomic.
func TestObjectsWithoutGoTypeMergeByRules(t *testing.T) {
	const rules = `types:
- name: thing
  map:
    fields:
    - {name: apiVersion, type: {scalar: string}}
    - {name: kind, type: {scalar: string}}
    - {name: metadata, type: {namedType: any}}
    - name: spec
      type:
        map:
          fields:
          - {name: size, type: {scalar: numeric}}
          - name: parts
            type:
              list:
                elementRelationship: associative
                keys: [name]
                elementType:
                  map:
                    fields:
                    - {name: name, type: {scalar: string}}
                    - {name: value, type: {scalar: string}}
- name: any
  scalar: untyped
  list: {elementRelationship: atomic, elementType: {namedType: any}}
  map: {elementType: {namedType: any}, elementRelationship: separable}
`
	part := func(name, value string) map[string]any { return map[string]any{"name": name, "value": value} }
	for _, test := range []struct {
		name  string
		rules typed.YAMLObject
		want  string // owners after the second apply
		parts int    // length of the list after the second apply
	}{
		{
			name:  "rules merge the list by its keys",
			rules: rules,
			want: `second Apply example.org/v1 {"f:spec":{"f:parts":{"k:{\"name\":\"y\"}":{".":{},"f:name":{},"f:value":{}}}}}
first Update example.org/v1 {"f:spec":{".":{},"f:parts":{".":{},"k:{\"name\":\"x\"}":{".":{},"f:name":{},"f:value":{}}},"f:size":{}}}`,
			parts: 2,
		},
		{
			name: "without rules, the list is atomic",
			want: `second Apply example.org/v1 {"f:spec":{".":{},"f:parts":{}}}
first Update example.org/v1 {"f:spec":{".":{},"f:size":{}}}`,
			parts: 1,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			manager := newCustomManager(t, test.rules)
			obj := &unstructured.Unstructured{Object: newThing(map[string]any{"size": int64(1), "parts": []any{part("x", "1")}})}
			updateAs(t, manager, nil, obj, "first")
			obj.SetUID("u")
			out, err := manager.Apply(t.Context(), obj, newThing(map[string]any{"parts": []any{part("y", "2")}}), "second", true)
			if err != nil {
				t.Fatal(err)
			}
			checkOwners(t, out, strings.Split(test.want, "\n")...)
			parts, _, _ := unstructured.NestedSlice(out.(*unstructured.Unstructured).Object, "spec", "parts")
			if len(parts) != test.parts {
				t.Errorf("got parts %v, want %d", parts, test.parts)
			}
			if _, err := manager.Apply(
				t.Context(),
				out,
				newThing(map[string]any{"size": int64(2)}),
				"third",
				false,
			); !apierrors.IsConflict(err) {
				t.Errorf("apply of a field of another manager: got error %v, want a conflict", err)
			}
			again, err := manager.Apply(t.Context(), out, newThing(map[string]any{"parts": []any{part("y", "2")}}), "second", false)
			if err != nil || !EqualExceptTimes(again.GetManagedFields(), out.GetManagedFields()) || !manager.Equal(again, out) {
				t.Errorf("same apply again: got error %v, or a change, want neither", err)
			}
			next := out.DeepCopyObject().(*unstructured.Unstructured)
			if err := unstructured.SetNestedField(next.Object, int64(5), "spec", "size"); err != nil {
				t.Fatal(err)
			}
			updateAs(t, manager, out, next, "fourth")
			if got := formatOwners(next); !strings.Contains(
				got,
				`fourth Update example.org/v1 {"f:spec":{"f:size":{}}}`,
			) || manager.Equal(out, next) {
				t.Errorf("got owners\n%s\nwant the object changed, and among them %s",
					got, `fourth Update example.org/v1 {"f:spec":{"f:size":{}}}`)
			}
		})
	}
}
