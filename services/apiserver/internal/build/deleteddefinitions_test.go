package build

import (
	"fmt"
	"net"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/config"
	"binnacle/services/apiserver/internal/controllers/statuses"
	"binnacle/services/apiserver/internal/storage"
	"binnacle/services/apiserver/internal/storage/etcd/etcdtest"
)

// TestDeletedDefinitionIsGoneOnAllReplicas checks that a client that saw a deletion complete
// neither reads nor leaves objects of the resource on a replica that lags. A later definition of
// the same name starts empty.
func TestDeletedDefinitionIsGoneOnAllReplicas(t *testing.T) {
	skipInShortMode(t)
	t.Parallel()
	etcd := etcdtest.ListeningServer(t)
	on := func(options *config.Options) {
		options.Etcd.Backend = config.BackendEtcd
		options.Etcd.Servers = []string{etcd.Endpoint()}
	}
	api := startServer(t, on)
	lagging := &laggingSource{requested: make(chan struct{}, 1)}
	second := startServer(t, func(options *config.Options) {
		on(options)
		options.AdvertiseAddress = net.IPv4(127, 0, 0, 2)
		options.WrapSource = func(s watchcache.Source) watchcache.Source {
			lagging.Source = s
			return lagging
		}
	})
	t.Cleanup(func() { lagging.lags.Store(false); lagging.let() })
	lagging.lags.Store(true)
	const things = "/apis/example.com/v1/namespaces/default/things"
	const applied = `{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"x"}}`
	apply := []string{"Content-Type", "application/apply-patch+yaml"}
	for name, then := range map[string]func(){
		"list": func() { second.mustSend(404, "GET", things, "") },
		"get":  func() { second.mustSend(404, "GET", things+"/kept", "") },
		"watch": func() {
			second.mustSend(404, "GET", things+"?watch=1", "")
		},
		"create": func() { second.mustSend(404, "POST", things, strings.ReplaceAll(applied, `"x"`, `"y"`)) },
		"dry run": func() {
			second.mustSend(404, "POST", things+"?dryRun=All", strings.ReplaceAll(applied, `"x"`, `"y"`))
		},
		"apply":  func() { second.mustSend(404, "PATCH", things+"/x?fieldManager=me", applied, apply...) },
		"delete": func() { second.mustSend(404, "DELETE", things+"/kept", "") },
		"delete all": func() {
			second.mustSend(404, "DELETE", things, "")
		},
		"another of the same name": func() {
			api.mustSend(201, "POST", definitionsPath, definitionOf("things", "Thing", ""))
			second.mustSend(201, "POST", things, strings.ReplaceAll(applied, `"x"`, `"y"`))
			if response := second.mustSend(200, "GET", things, ""); strings.Count(string(response.body), `"uid"`) != 1 {
				t.Errorf("before the deletion: got %s, want one object", response.body)
			}
			api.mustSend(200, "DELETE", definitionsPath+"/things.example.com", "")
			api.waitUntil("gone", func() bool { return api.get(definitionsPath+"/things.example.com").code == 404 })
		},
	} {
		t.Run(name, func(t *testing.T) {
			api.mustSend(201, "POST", definitionsPath, definitionOf("things", "Thing", ""))
			second.mustSend(201, "POST", things, strings.ReplaceAll(applied, `"x"`, `"kept"`))
			second.mustSend(200, "GET", things, "")
			api.mustSend(200, "DELETE", definitionsPath+"/things.example.com", "")
			api.waitUntil("gone", func() bool { return api.get(definitionsPath+"/things.example.com").code == 404 })
			then()
			left, err := api.server.stores.store.List(t.Context(), api.server.base.root+"/example.com/things/", storage.ListOptions{})
			if err != nil || left.Count != 0 {
				t.Errorf("after the deletion: got objects %v, %v, want none", left.Items, err)
			}
		})
	}
}

// TestDefinitionOutlivesItsObjects checks that a definition is not removed before objects that were
// created after they were counted.
func TestDefinitionOutlivesItsObjects(t *testing.T) {
	t.Parallel()
	api := startServer(t, nil)
	const path, finalizer = definitionsPath + "/things.example.com", "customresourcecleanup.apiextensions.k8s.io"
	api.mustSend(201, "POST", definitionsPath, definitionOf("things", "Thing", ""))
	api.mustSend(201, "POST", "/apis/example.com/v1/namespaces/default/things",
		`{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"x","finalizers":["a.b/c"]}}`)
	api.mustSend(200, "DELETE", path, "")
	api.waitUntil("in progress", func() bool { return api.get(path).conditions()["Terminating"] == "True InstanceDeletionInProgress" })
	release := func(prefix string) error {
		return statuses.Definitions{Client: api.server.sets.client}.PatchStatus(t.Context(), "things.example.com",
			map[string]any{
				"metadata": map[string]any{"finalizers": nil},
			}, storage.Precondition{Key: api.server.base.root + prefix, Prefix: true})
	}
	if err := release("/example.com/things/"); !apierrors.IsConflict(err) {
		t.Errorf("release while there is one: %v", err)
	}
	if response := api.mustSend(200, "GET", path, ""); !strings.Contains(fmt.Sprint(response.field("metadata", "finalizers")), finalizer) {
		t.Errorf("got finalizers %v, want %s", response.field("metadata", "finalizers"), finalizer)
	}
	if err := release("/example.com/others/"); err != nil {
		t.Errorf("release while there is none: %v", err)
	}
	api.mustSend(404, "GET", path, "")
}
