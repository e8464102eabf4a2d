package audit

import (
	"encoding/json"
	"testing"
)

func TestWithoutManagedFields(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{`{"metadata":{"name":"a","managedFields":[{"manager":"m"}],"x":1}}`, `{"metadata":{"name":"a","x":1}}`},
		{`{"metadata":{"managedFields":[{}],"x":1}}`, `{"metadata":{"x":1}}`},
		{`{"metadata":{"managedFields":[{}]}}`, `{"metadata":{}}`},
		{`{"metadata":{"managedFields":[],"managedFields":[],"x":1}}`, `{"metadata":{"x":1}}`},
		{`{"metadata":{"x":1,"managedFields":[],"managedFields":[]}}`, `{"metadata":{"x":1}}`},
		{`{ "metadata" : { "managedFields" : [ ] , "x" : 1 } , "data" : {"managedFields":"stays"} }`, `{ "metadata" : { "x" : 1 } , "data" : {"managedFields":"stays"} }`},
		{`{"items":[{"metadata":{"managedFields":[1]}},{"metadata":{"a":{"managedFields":"stays"}}}],"metadata":{}}`, `{"items":[{"metadata":{}},{"metadata":{"a":{"managedFields":"stays"}}}],"metadata":{}}`},
		{`{"rows":[{"cells":["managedFields"],"object":{"metadata":{"name":"n","managedFields":null}}}]}`, `{"rows":[{"cells":["managedFields"],"object":{"metadata":{"name":"n"}}}]}`},
		{`{"metadata":"text","items":7,"rows":null}`, `{"metadata":"text","items":7,"rows":null}`},
		{`{"managedFields":[],"spec":{"metadata":{"managedFields":[]}}}`, `{"managedFields":[],"spec":{"metadata":{"managedFields":[]}}}`},
		{`[{"op":"add","path":"/metadata/managedFields"}]`, `[{"op":"add","path":"/metadata/managedFields"}]`},
		{`{"metadata":{"metadata":{"managedFields":"stays"},"items":[{"metadata":{"managedFields":"stays"}}]}}`, `{"metadata":{"metadata":{"managedFields":"stays"},"items":[{"metadata":{"managedFields":"stays"}}]}}`},
		{`{"items":[{"items":[{"metadata":{"managedFields":"stays"}}],"object":{"metadata":{"managedFields":"stays"}}}]}`, `{"items":[{"items":[{"metadata":{"managedFields":"stays"}}],"object":{"metadata":{"managedFields":"stays"}}}]}`},
		{`{"object":{"metadata":{"managedFields":"stays"}}}`, `{"object":{"metadata":{"managedFields":"stays"}}}`},
		{`{"rows":[{"metadata":{"managedFields":"stays"},"items":[{"metadata":{"managedFields":"stays"}}]}]}`, `{"rows":[{"metadata":{"managedFields":"stays"},"items":[{"metadata":{"managedFields":"stays"}}]}]}`},
		{`{"rows":[{"object":{"items":[{"metadata":{"managedFields":"stays"}}]}}]}`, `{"rows":[{"object":{"items":[{"metadata":{"managedFields":"stays"}}]}}]}`},
		{`{"metadata":{"managedFields":[`, ``},
		{`nonsense`, ``},
	} {
		got := string(withoutManagedFields([]byte(c.text)))
		if got != c.want && !same(got, c.want) {
			t.Errorf("%s\n   is %s\n want %s", c.text, got, c.want)
		}
	}
}

// TestWithoutManagedFieldsDropsInvalidJSON: text with a syntax error at any position is dropped.
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

// same reports whether two JSON texts have the same value.
func same(a, b string) bool {
	var x, y any
	return json.Unmarshal([]byte(a), &x) == nil && json.Unmarshal([]byte(b), &y) == nil && marshal(x) == marshal(y)
}

func marshal(v any) string {
	b, _ := json.Marshal(v)
	return string(b)
}

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
