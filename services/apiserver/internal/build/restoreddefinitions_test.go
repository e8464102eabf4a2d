package build

import (
	"strconv"
	"strings"
	"testing"

	"binnacle/services/apiserver/internal/config"
	"binnacle/services/apiserver/internal/storage/etcd/etcdtest"
)

// TestDocumentsFollowRestoredDefinitions restores a store that reuses revisions for other definitions. API
// documents and policy statuses follow.
func TestDocumentsFollowRestoredDefinitions(t *testing.T) {
	skipInShortMode(t)
	t.Parallel()
	old := etcdtest.ListeningServer(t)
	restored := etcdtest.ListeningServer(t)
	proxy := etcdtest.NewProxy(t, old.Endpoint())
	api := startServer(t, func(options *config.Options) {
		options.Etcd.Backend = config.BackendEtcd
		options.Etcd.Servers = []string{proxy.Endpoint()}
	})
	const document = "/openapi/v3/apis/example.com/v1"
	api.mustSend(201, "POST", definitionsPath, strings.Replace(definitionOf("gadgets", "Gadget", ""),
		`{"type":"object"}`, `{"type":"object","properties":{"width":{"type":"integer"}}}`, 1))
	api.mustSend(201, "POST", policiesPath,
		admissionPolicy("p", "example.com", "gadgets", `"validations":[{"expression":"object.width > 0"}]`))
	api.waitForStatus("p", "1")
	at := api.mustSend(200, "PATCH", definitionsPath+"/gadgets.example.com", `{"metadata":{"labels":{"a":"b"}}}`,
		"Content-Type", mergePatch).resourceVersion()
	until, err := strconv.ParseInt(at, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	if text := string(api.get(document).body); !strings.Contains(text, "width") {
		t.Fatalf("got OpenAPI document %s, want the field width", text)
	}

	etcdtest.ReplayHistory(t, old, restored, until, func(value string) string { return strings.ReplaceAll(value, "width", "depth") })
	proxy.Switch(t, restored.Endpoint())
	api.waitUntil("the definition is the restored one", func() bool {
		return strings.Contains(string(api.get(definitionsPath+"/gadgets.example.com").body), "depth")
	})
	api.waitUntil("the document is of the restored definition", func() bool {
		text := string(api.get(document).body)
		return strings.Contains(text, "depth") && !strings.Contains(text, "width")
	})
	api.waitForStatus("p",
		"1 spec.validations[0].expression: example.com/v1, Kind=Gadget: ERROR: <input>:1:7: undefined field 'width'")
}
