package build

import (
	"context"
	"fmt"
	"testing"
	"time"

	"binnacle/services/apiserver/internal/config"
	"binnacle/services/apiserver/internal/storage/etcd"
	"binnacle/services/apiserver/internal/storage/etcd/etcdtest"
)

// TestWatchResumesAfterRestart checks that a watch of custom resources resumes like that of a
// built-in kind, also if the restarted server reads the definition from the history.
func TestWatchResumesAfterRestart(t *testing.T) {
	skipInShortMode(t)
	t.Parallel()
	servers := []string{etcdtest.ListeningServer(t).Endpoint()}
	configure := func(options *config.Options) {
		options.Etcd.Backend, options.Etcd.Servers = config.BackendEtcd, servers
	}
	const things, others = "/apis/example.com/v1/namespaces/default/things", "/apis/example.com/v1/namespaces/default/others"
	object := func(kind, name string) string {
		return fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":%q,"metadata":{"name":%q}}`, kind, name)
	}
	from := map[string]string{}
	t.Run("before", func(t *testing.T) {
		api := startServer(t, configure)
		api.mustSend(201, "POST", definitionsPath, definitionOf("things", "Thing", ""))
		api.mustSend(201, "POST", things, object("Thing", "first"))
		forgetHistory(t, api) // the history after this contains the definition
		oldest := api.mustSend(201, "POST", configMaps, configMap("first")).resourceVersion()
		from[things], from[configMaps] = oldest, oldest
		api.mustSend(201, "POST", definitionsPath, definitionOf("others", "Other", ""))
		from[others] = api.get(definitionsPath + "/others.example.com").resourceVersion()
		for _, name := range []string{"second", "third"} {
			api.mustSend(201, "POST", things, object("Thing", name))
			api.mustSend(201, "POST", configMaps, configMap(name))
			api.mustSend(201, "POST", others, object("Other", name))
		}
		api.mustSend(200, "DELETE", things+"/second", "")
		api.mustSend(200, "DELETE", configMaps+"/second", "")
		api.mustSend(200, "DELETE", others+"/second", "")
	})
	api := startServer(t, configure)
	for path, version := range from {
		var got []string
		for _, e := range api.watchEvents(path+"?watch=1&timeoutSeconds=5&resourceVersion="+version, 3) {
			got = append(got, fmt.Sprint(e["type"], " ", e["object"].(map[string]any)["metadata"].(map[string]any)["name"]))
		}
		if want := "[ADDED second ADDED third DELETED second]"; fmt.Sprint(got) != want {
			t.Errorf("%s from %s: got %v, want %s", path, version, got, want)
		}
	}
}

// forgetHistory compacts the store up to the current revision.
func forgetHistory(t *testing.T, api *testServer) {
	t.Helper()
	_, before, err := api.server.stores.store.History(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		done <- (&etcd.Compactor{Store: api.server.stores.store.(*etcd.Store), Interval: 20 * time.Millisecond}).Run(ctx)
	}()
	defer func() { cancel(); <-done }()
	api.waitUntil("compacted", func() bool {
		oldest, _, err := api.server.stores.store.History(t.Context())
		return err == nil && oldest >= before
	})
}

// TestSelectableFieldsFollowDefinition checks that field selectors use the newest definition as
// soon as its update completes.
func TestSelectableFieldsFollowDefinition(t *testing.T) {
	t.Parallel()
	api := startServer(t, nil)
	definition := func(fields string) string {
		return fmt.Sprintf(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"things.example.com"},"spec":{"group":"example.com","scope":"Namespaced",
		"names":{"plural":"things","kind":"Thing"},"versions":[{"name":"v1","served":true,"storage":true,"selectableFields":[%s],
		"schema":{"openAPIV3Schema":{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"string"}}}}}]}}`, fields)
	}
	const path = "/apis/example.com/v1/namespaces/default/things"
	api.mustSend(201, "POST", definitionsPath, definition(`{"jsonPath":".a"}`))
	for _, o := range []string{`"name":"one"},"a":"1","b":"2"`, `"name":"two"},"a":"2","b":"2"`} {
		api.mustSend(201, "POST", path, `{"apiVersion":"example.com/v1","kind":"Thing","metadata":{`+o+`}`)
	}
	count := func(selector string) int {
		items, _ := api.mustSend(200, "GET", path+"?fieldSelector="+selector, "").field("items").([]any)
		return len(items)
	}
	if n := count("a%3D1"); n != 1 {
		t.Errorf("selected by the first field: got %d objects, want 1", n)
	}
	api.mustSend(400, "GET", path+"?fieldSelector=b%3D2", "")
	api.mustSend(200, "PATCH", definitionsPath+"/things.example.com",
		`[{"op":"add","path":"/spec/versions/0/selectableFields/-","value":{"jsonPath":".b"}}]`,
		"Content-Type", "application/json-patch+json")
	if n := count("b%3D2"); n != 2 {
		t.Errorf("selected by the added field: got %d objects, want 2", n)
	}
	if n := count("b%3D2,a%3D2"); n != 1 {
		t.Errorf("selected by both fields: got %d objects, want 1", n)
	}
}
