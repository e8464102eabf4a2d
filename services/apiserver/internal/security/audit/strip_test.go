package audit

import (
	"encoding/json"
	"testing"
)

// TestWithoutManagedFields checks that managedFields are removed from the metadata of objects,
// items and rows, and nowhere else.
func TestWithoutManagedFields(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{text: `{"metadata":{"name":"a","managedFields":[{"manager":"m"}],"x":1}}`, want: `{"metadata":{"name":"a","x":1}}`},
		{text: `{"metadata":{"managedFields":[{}],"x":1}}`, want: `{"metadata":{"x":1}}`},
		{text: `{"metadata":{"managedFields":[{}]}}`, want: `{"metadata":{}}`},
		{text: `{"metadata":{"managedFields":[],"managedFields":[],"x":1}}`, want: `{"metadata":{"x":1}}`},
		{text: `{"metadata":{"x":1,"managedFields":[],"managedFields":[]}}`, want: `{"metadata":{"x":1}}`},
		{
			text: `{ "metadata" : { "managedFields" : [ ] , "x" : 1 } , "data" : {"managedFields":"stays"} }`,
			want: `{ "metadata" : { "x" : 1 } , "data" : {"managedFields":"stays"} }`,
		},
		{
			text: `{"items":[{"metadata":{"managedFields":[1]}},{"metadata":{"a":{"managedFields":"stays"}}}],"metadata":{}}`,
			want: `{"items":[{"metadata":{}},{"metadata":{"a":{"managedFields":"stays"}}}],"metadata":{}}`,
		},
		{
			text: `{"rows":[{"cells":["managedFields"],"object":{"metadata":{"name":"n","managedFields":null}}}]}`,
			want: `{"rows":[{"cells":["managedFields"],"object":{"metadata":{"name":"n"}}}]}`,
		},
		{text: `{"metadata":"text","items":7,"rows":null}`, want: `{"metadata":"text","items":7,"rows":null}`},
		{
			text: `{"managedFields":[],"spec":{"metadata":{"managedFields":[]}}}`,
			want: `{"managedFields":[],"spec":{"metadata":{"managedFields":[]}}}`,
		},
		{text: `[{"op":"add","path":"/metadata/managedFields"}]`, want: `[{"op":"add","path":"/metadata/managedFields"}]`},
		{
			text: `{"metadata":{"metadata":{"managedFields":"stays"},"items":[{"metadata":{"managedFields":"stays"}}]}}`,
			want: `{"metadata":{"metadata":{"managedFields":"stays"},"items":[{"metadata":{"managedFields":"stays"}}]}}`,
		},
		{
			text: `{"items":[{"items":[{"metadata":{"managedFields":"stays"}}],"object":{"metadata":{"managedFields":"stays"}}}]}`,
			want: `{"items":[{"items":[{"metadata":{"managedFields":"stays"}}],"object":{"metadata":{"managedFields":"stays"}}}]}`,
		},
		{text: `{"object":{"metadata":{"managedFields":"stays"}}}`, want: `{"object":{"metadata":{"managedFields":"stays"}}}`},
		{
			text: `{"rows":[{"metadata":{"managedFields":"stays"},"items":[{"metadata":{"managedFields":"stays"}}]}]}`,
			want: `{"rows":[{"metadata":{"managedFields":"stays"},"items":[{"metadata":{"managedFields":"stays"}}]}]}`,
		},
		{
			text: `{"rows":[{"object":{"items":[{"metadata":{"managedFields":"stays"}}]}}]}`,
			want: `{"rows":[{"object":{"items":[{"metadata":{"managedFields":"stays"}}]}}]}`,
		},
		{text: `{"metadata":{"managedFields":[`, want: ``},
		{text: `nonsense`, want: ``},
	} {
		got := string(withoutManagedFields([]byte(test.text)))
		if got != test.want && !sameJSON(got, test.want) {
			t.Errorf("%s\n   is %s\n want %s", test.text, got, test.want)
		}
	}
}

// TestWithoutManagedFieldsDropsInvalidJSON checks that text with a syntax error at any position is
// dropped.
func TestWithoutManagedFieldsDropsInvalidJSON(t *testing.T) {
	const text = `{"kind":"L","items":[{"metadata":{"name":"a","managedFields":[1],"x":{"y":2}}},{"metadata":{"managedFields":[2]}}],"rows":[{"object":{"metadata":{}}}]}`
	for at := range len(text) {
		for _, odd := range []string{"", "!", `"!`, "]", "}"} {
			for _, cut := range []string{text[:at] + odd, text[:at] + odd + text[at:]} {
				if got := withoutManagedFields([]byte(cut)); json.Valid([]byte(cut)) == (got == nil) {
					t.Fatalf("withoutManagedFields(%s) = %s, want nil only for invalid JSON", cut, got)
				}
			}
		}
	}
}

// sameJSON reports whether two JSON texts have the same value.
func sameJSON(a, b string) bool {
	var x, y any
	return json.Unmarshal([]byte(a), &x) == nil && json.Unmarshal([]byte(b), &y) == nil && mustMarshal(x) == mustMarshal(y)
}

func mustMarshal(v any) string {
	b, _ := json.Marshal(v)
	return string(b)
}

// FuzzWithoutManagedFields checks that the result for any object is valid JSON without
// managedFields.
func FuzzWithoutManagedFields(f *testing.F) {
	f.Add([]byte(`{"metadata":{"a":1,"managedFields":[{"manager":"m"}]},"items":[{"metadata":{"managedFields":[]}}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var want map[string]any
		if json.Unmarshal(text, &want) != nil {
			withoutManagedFields(text)
			return
		}
		got := withoutManagedFields(text)
		var left map[string]any
		if err := json.Unmarshal(got, &left); err != nil {
			t.Fatalf("withoutManagedFields(%q) = %q, want valid JSON: %v", text, got, err)
		}
		if m, ok := left["metadata"].(map[string]any); ok && m["managedFields"] != nil {
			t.Fatalf("withoutManagedFields(%q): got managedFields, want none", text)
		}
	})
}
