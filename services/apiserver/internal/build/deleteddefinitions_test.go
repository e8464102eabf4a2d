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
	on := func(o *config.Options) {
		o.Etcd.Backend = config.BackendEtcd
		o.Etcd.Servers = []string{etcd.Endpoint()}
	}
	a := start(t, on)
	l := &laggingSource{requested: make(chan struct{}, 1)}
	b := start(t, func(o *config.Options) {
		on(o)
		o.AdvertiseAddress = net.IPv4(127, 0, 0, 2)
		o.WrapSource = func(s watchcache.Source) watchcache.Source {
			l.Source = s
			return l
		}
	})
	t.Cleanup(func() { l.lags.Store(false); l.let() })
	l.lags.Store(true)
	const things = "/apis/example.com/v1/namespaces/default/things"
	const applied = `{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"x"}}`
	apply := []string{"Content-Type", "application/apply-patch+yaml"}
	for name, then := range map[string]func(){
		"list": func() { b.want(404, "GET", things, "") },
		"get":  func() { b.want(404, "GET", things+"/kept", "") },
		"watch": func() {
			b.want(404, "GET", things+"?watch=1", "")
		},
		"create": func() { b.want(404, "POST", things, strings.ReplaceAll(applied, `"x"`, `"y"`)) },
		"dry run": func() {
			b.want(404, "POST", things+"?dryRun=All", strings.ReplaceAll(applied, `"x"`, `"y"`))
		},
		"apply":  func() { b.want(404, "PATCH", things+"/x?fieldManager=me", applied, apply...) },
		"delete": func() { b.want(404, "DELETE", things+"/kept", "") },
		"delete all": func() {
			b.want(404, "DELETE", things, "")
		},
		"another of the same name": func() {
			a.want(201, "POST", definitionsPath, definitionOf("things", "Thing", ""))
			b.want(201, "POST", things, strings.ReplaceAll(applied, `"x"`, `"y"`))
			if r := b.want(200, "GET", things, ""); strings.Count(string(r.body), `"uid"`) != 1 {
				t.Errorf("before the deletion: got %s, want one object", r.body)
			}
			a.want(200, "DELETE", definitionsPath+"/things.example.com", "")
			a.eventually("gone", func() bool { return a.get(definitionsPath+"/things.example.com").code == 404 })
		},
	} {
		t.Run(name, func(t *testing.T) {
			a.want(201, "POST", definitionsPath, definitionOf("things", "Thing", ""))
			b.want(201, "POST", things, strings.ReplaceAll(applied, `"x"`, `"kept"`))
			b.want(200, "GET", things, "")
			a.want(200, "DELETE", definitionsPath+"/things.example.com", "")
			a.eventually("gone", func() bool { return a.get(definitionsPath+"/things.example.com").code == 404 })
			then()
			left, err := a.server.stores.store.List(t.Context(), a.server.base.root+"/example.com/things/", storage.ListOptions{})
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
	api := start(t, nil)
	const path, finalizer = definitionsPath + "/things.example.com", "customresourcecleanup.apiextensions.k8s.io"
	api.want(201, "POST", definitionsPath, definitionOf("things", "Thing", ""))
	api.want(201, "POST", "/apis/example.com/v1/namespaces/default/things",
		`{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"x","finalizers":["a.b/c"]}}`)
	api.want(200, "DELETE", path, "")
	api.eventually("in progress", func() bool { return api.get(path).conditions()["Terminating"] == "True InstanceDeletionInProgress" })
	release := func(prefix string) error {
		return statuses.Definitions{Client: api.server.sets.client}.PatchStatus(t.Context(), "things.example.com",
			map[string]any{
				"metadata": map[string]any{"finalizers": nil},
			}, storage.Precondition{Key: api.server.base.root + prefix, Prefix: true})
	}
	if err := release("/example.com/things/"); !apierrors.IsConflict(err) {
		t.Errorf("release while there is one: %v", err)
	}
	if r := api.want(200, "GET", path, ""); !strings.Contains(fmt.Sprint(r.at("metadata", "finalizers")), finalizer) {
		t.Errorf("got finalizers %v, want %s", r.at("metadata", "finalizers"), finalizer)
	}
	if err := release("/example.com/others/"); err != nil {
		t.Errorf("release while there is none: %v", err)
	}
	api.want(404, "GET", path, "")
}
