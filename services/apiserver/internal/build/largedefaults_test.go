package build

import (
	"fmt"
	"strings"
	"testing"
)

// TestDefaultsThatMakeObjectsTooLarge checks that objects that later defaults would make too large
// are served without them, and can be patched and deleted. Complete updates apply the defaults and
// are rejected.
func TestDefaultsThatMakeObjectsTooLarge(t *testing.T) {
	skipInShortMode(t)
	t.Parallel()
	api := start(t, nil)
	const items = 20_000
	definition := func(more string) string {
		schema := `{"type":"object","properties":{"l":{"type":"array","items":{"type":"object","properties":{"a":{"type":"string"` +
			more + `}}}}}}`
		return strings.Replace(definitionOf("grows", "Grow", ""), `{"type":"object"}`, schema, 1)
	}
	large := fmt.Sprintf(`,"default":%q`, strings.Repeat("x", 1000))
	const at = definitionsPath + "/grows.example.com"
	api.want(201, "POST", definitionsPath, definition(""))
	const objects = "/apis/example.com/v1/namespaces/default/grows"
	object := func(name string, items int) string {
		return `{"apiVersion":"example.com/v1","kind":"Grow","metadata":{"name":"` +
			name + `"},"l":[` + strings.TrimSuffix(strings.Repeat("{},", items), ",") + `]}`
	}
	api.eventually("served", func() bool { return api.get(objects).code == 200 })
	api.want(201, "POST", objects, object("large", items))
	api.want(201, "POST", objects, object("small", 1))
	r := api.get(at)
	body := strings.Replace(definition(large), `"metadata":{`, `"metadata":{"resourceVersion":"`+r.version()+`",`, 1)
	api.want(200, "PUT", at, body)
	api.eventually("defaults", func() bool { return strings.Contains(string(api.get(objects+"/small").body), "xxx") })
	for what, path := range map[string]string{"get": objects + "/large", "list": objects} {
		if r := api.get(path); r.code != 200 || strings.Count(string(r.body), "{}") < items {
			t.Errorf("%s: got status %d: %.300s, want 200 and %d items", what, r.code, r.body, items)
		}
	}
	if r := api.send("PUT", objects+"/large", object("large", items)); r.code != 400 {
		t.Errorf("update: got status %d: %.300s, want 400", r.code, r.body)
	}
	if r := api.send("PATCH", objects+"/large", `{"metadata":{"labels":{"a":"b"}}}`, "Content-Type",
		"application/merge-patch+json"); r.code != 200 {
		t.Errorf("patch: got status %d: %.300s, want 200", r.code, r.body)
	}
	api.want(200, "DELETE", objects+"/large", "")
	if r := api.get(objects + "/large"); r.code != 404 {
		t.Errorf("after the delete: got status %d: %.300s, want 404", r.code, r.body)
	}
}
