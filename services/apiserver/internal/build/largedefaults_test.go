package build

import (
	"fmt"
	"strings"
	"testing"
)

// TestDefaultsBeyondSizeLimitAreOmitted checks that objects that later defaults would make too large
// are served without them, and can be patched and deleted. Complete updates apply the defaults and
// are rejected.
func TestDefaultsBeyondSizeLimitAreOmitted(t *testing.T) {
	skipInShortMode(t)
	t.Parallel()
	api := startServer(t, nil)
	const items = 20_000
	definition := func(more string) string {
		schema := `{"type":"object","properties":{"l":{"type":"array","items":{"type":"object","properties":{"a":{"type":"string"` +
			more + `}}}}}}`
		return strings.Replace(definitionOf("grows", "Grow", ""), `{"type":"object"}`, schema, 1)
	}
	large := fmt.Sprintf(`,"default":%q`, strings.Repeat("x", 1000))
	const at = definitionsPath + "/grows.example.com"
	api.mustSend(201, "POST", definitionsPath, definition(""))
	const objects = "/apis/example.com/v1/namespaces/default/grows"
	object := func(name string, items int) string {
		return `{"apiVersion":"example.com/v1","kind":"Grow","metadata":{"name":"` +
			name + `"},"l":[` + strings.TrimSuffix(strings.Repeat("{},", items), ",") + `]}`
	}
	api.waitUntil("served", func() bool { return api.get(objects).code == 200 })
	api.mustSend(201, "POST", objects, object("large", items))
	api.mustSend(201, "POST", objects, object("small", 1))
	response := api.get(at)
	body := strings.Replace(definition(large), `"metadata":{`, `"metadata":{"resourceVersion":"`+response.resourceVersion()+`",`, 1)
	api.mustSend(200, "PUT", at, body)
	api.waitUntil("defaults", func() bool { return strings.Contains(string(api.get(objects+"/small").body), "xxx") })
	for what, path := range map[string]string{"get": objects + "/large", "list": objects} {
		if response := api.get(path); response.code != 200 || strings.Count(string(response.body), "{}") < items {
			t.Errorf("%s: got status %d: %.300s, want 200 and %d items", what, response.code, response.body, items)
		}
	}
	if response := api.send("PUT", objects+"/large", object("large", items)); response.code != 400 {
		t.Errorf("update: got status %d: %.300s, want 400", response.code, response.body)
	}
	if response := api.send("PATCH", objects+"/large", `{"metadata":{"labels":{"a":"b"}}}`, "Content-Type",
		"application/merge-patch+json"); response.code != 200 {
		t.Errorf("patch: got status %d: %.300s, want 200", response.code, response.body)
	}
	api.mustSend(200, "DELETE", objects+"/large", "")
	if response := api.get(objects + "/large"); response.code != 404 {
		t.Errorf("after the delete: got status %d: %.300s, want 404", response.code, response.body)
	}
}
