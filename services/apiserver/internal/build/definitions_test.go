package build

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"

	"binnacle/services/apiserver/internal/config"
	"binnacle/services/apiserver/internal/storage"
	"binnacle/services/apiserver/internal/storage/etcd/etcdtest"
)

const definitionsPath = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

// definitionOf returns a definition of a resource with a kind.
func definitionOf(plural, kind, more string) string {
	return fmt.Sprintf(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"%[1]s.example.com"},"spec":{"group":"example.com","scope":"Namespaced",
		"names":{"plural":%[1]q,"singular":%[1]q,"kind":%[2]q}%[3]s,"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`, plural, kind, more)
}

// conditions returns the conditions of a definition: type=status and reason.
func (r apiResponse) conditions() map[string]string {
	out := map[string]string{}
	list, _ := r.field("status", "conditions").([]any)
	for _, condition := range list {
		condition, _ := condition.(map[string]any)
		out[fmt.Sprint(condition["type"])] = fmt.Sprintf("%v %v", condition["status"], condition["reason"])
	}
	return out
}

// replicasOn starts n replicas of one cluster.
func replicasOn(t *testing.T, count int) []*testServer {
	t.Helper()
	etcd := etcdtest.ListeningServer(t)
	var out []*testServer
	for i := range count {
		out = append(out, startServer(t, func(options *config.Options) {
			options.Etcd.Backend = config.BackendEtcd
			options.Etcd.Servers = []string{etcd.Endpoint()}
			options.AdvertiseAddress = net.IPv4(127, 0, 0, byte(i+1))
		}))
	}
	return out
}

// TestOldestOfConcurrentDefinitionsGetsKind checks that the oldest of the definitions that two replicas
// create for one kind at the same time gets the kind. Each has its conditions when its request completes.
func TestOldestOfConcurrentDefinitionsGetsKind(t *testing.T) {
	skipInShortMode(t)
	t.Parallel()
	const each = 5
	replicas := replicasOn(t, 2)
	type made struct {
		name     string
		revision int64
	}
	var mu sync.Mutex
	var all []made
	var wg sync.WaitGroup
	for i := range each * len(replicas) {
		wg.Go(func() {
			replica := replicas[i%len(replicas)]
			name := fmt.Sprintf("things%c", 'a'+i)
			response := replica.send("POST", definitionsPath, definitionOf(name, "Thing", ""))
			if response.code != 201 || len(response.conditions()) > 0 {
				t.Errorf("create: got status %d: %s, want 201 and no conditions", response.code, response.body)
				return
			}
			got := replica.get(definitionsPath + "/" + name + ".example.com").conditions()
			if got["NamesAccepted"] == "" || got["Established"] == "" {
				t.Errorf("%s after its create: got conditions %v, want NamesAccepted and Established", name, got)
			}
			revision, _ := strconv.ParseInt(response.resourceVersion(), 10, 64)
			mu.Lock()
			defer mu.Unlock()
			all = append(all, made{name, revision})
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	first := all[0]
	for _, definition := range all {
		if definition.revision < first.revision {
			first = definition
		}
	}
	for _, definition := range all {
		want := map[string]string{"NamesAccepted": "False ListKindConflict", "Established": "False NotAccepted"}
		if definition == first {
			want = map[string]string{"NamesAccepted": "True NoConflicts", "Established": "True InitialNamesAccepted"}
		}
		if got := replicas[0].get(definitionsPath + "/" + definition.name + ".example.com").conditions(); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s (first is %s): got conditions %v, want %v", definition.name, first.name, got, want)
		}
	}
	// The next definition gets the released names.
	replicas[1].mustSend(200, "DELETE", definitionsPath+"/"+first.name+".example.com", "")
	replicas[0].waitUntil("one of the others established", func() bool {
		established := 0
		for _, definition := range all {
			if strings.HasPrefix(replicas[0].get(definitionsPath + "/" + definition.name + ".example.com").conditions()["Established"], "True") {
				established++
			}
		}
		return established == 1
	})
}

// TestDefinitionDeletionDeletesObjects checks that objects without finalizers are deleted at once,
// others when they are released, and the definition last.
func TestDefinitionDeletionDeletesObjects(t *testing.T) {
	skipInShortMode(t)
	t.Parallel()
	replicas := replicasOn(t, 2)
	api, store := replicas[0], replicas[0].server.stores.store
	api.mustSend(201, "POST", definitionsPath, definitionOf("things", "Thing", ""))
	prefix := api.server.base.root + "/example.com/things/ns/"
	storeThing := func(name, metadata string) {
		t.Helper()
		if _, err := store.Create(context.Background(), prefix+name,
			fmt.Appendf(nil, `{"metadata":{"name":%q%s}}`, name, metadata), storage.WriteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 30 {
		storeThing(fmt.Sprint("free", i), "")
	}
	storeThing("held", `,"finalizers":["a/b"]`)

	path := definitionsPath + "/things.example.com"
	if response := api.mustSend(409, "DELETE", path,
		`{"apiVersion":"v1","kind":"DeleteOptions","preconditions":{"uid":"other"}}`); !strings.Contains(fmt.Sprint(response.field("message")),
		"Precondition failed: UID in precondition: other, UID in object meta: ") {
		t.Errorf("got %s, want a message that contains %q",
			response.body, "Precondition failed: UID in precondition: other, UID in object meta: ")
	}
	response := api.mustSend(200, "DELETE", path, `{"apiVersion":"v1","kind":"DeleteOptions","propagationPolicy":"Foreground"}`)
	if got := fmt.Sprintf("%v %v %v %s", response.field("metadata", "finalizers"), response.field("metadata", "generation"),
		response.field("metadata", "deletionGracePeriodSeconds"), response.conditions()["Terminating"]); got != "[customresourcecleanup.apiextensions.k8s.io] 1 <nil> True InstanceDeletionPending" {
		t.Errorf("got definition in deletion %s, want its finalizer and Terminating", got)
	}
	left := func() int64 {
		res, err := store.List(context.Background(), prefix, storage.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return res.Count
	}
	api.waitUntil("left with what is held", func() bool { return left() == 1 })
	for _, on := range replicas {
		if got := on.get(path).conditions()["Terminating"]; got != "True InstanceDeletionInProgress" {
			t.Errorf("during the deletion: got Terminating %s, want True InstanceDeletionInProgress", got)
		}
	}
	api.mustSend(409, "POST", definitionsPath, definitionOf("things", "Thing", ""))
	stored, _, err := store.Get(context.Background(), prefix+"held", 0)
	if err != nil || !strings.Contains(string(stored.Value), "deletionTimestamp") {
		t.Fatalf("got stored value %s, %v, want one with deletionTimestamp", stored.Value, err)
	}
	if _, err := store.Delete(context.Background(), prefix+"held", stored.ModRevision); err != nil {
		t.Fatal(err)
	}
	api.waitUntil("gone", func() bool { return api.get(path).code == 404 })
	api.mustSend(201, "POST", definitionsPath, definitionOf("things", "Thing", ""))
}

// TestUnestablishedDefinitionIsDeletedWithoutCleanup checks that the deletion of a definition that was
// never established deletes no objects.
func TestUnestablishedDefinitionIsDeletedWithoutCleanup(t *testing.T) {
	t.Parallel()
	api := startServer(t, nil)
	api.mustSend(201, "POST", definitionsPath, definitionOf("things", "Thing", ""))
	api.mustSend(201, "POST", definitionsPath, definitionOf("others", "Thing", ""))
	key := api.server.base.root + "/example.com/others/ns/x"
	if _, err := api.server.stores.store.Create(context.Background(), key, []byte(`{"metadata":{"name":"x"}}`),
		storage.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	api.mustSend(200, "DELETE", definitionsPath+"/others.example.com", "")
	api.waitUntil("gone", func() bool { return api.get(definitionsPath+"/others.example.com").code == 404 })
	if _, _, err := api.server.stores.store.Get(context.Background(), key, 0); err != nil {
		t.Errorf("object below the key prefix of the definition: got error %v, want none", err)
	}
}

// TestDefinitionCleanupIsResumed checks that a replica completes the cleanup that another one
// started.
func TestDefinitionCleanupIsResumed(t *testing.T) {
	skipInShortMode(t)
	t.Parallel()
	etcd := etcdtest.ListeningServer(t)
	configure := func(options *config.Options) {
		options.Etcd.Backend = config.BackendEtcd
		options.Etcd.Servers = []string{etcd.Endpoint()}
	}
	key := ""
	t.Run("first replica", func(t *testing.T) {
		api := startServer(t, configure)
		api.mustSend(201, "POST", definitionsPath, definitionOf("things", "Thing", ""))
		key = api.server.base.root + "/example.com/things/ns/held"
		if _, err := api.server.stores.store.Create(context.Background(), key,
			[]byte(`{"metadata":{"name":"held","finalizers":["a/b"]}}`), storage.WriteOptions{}); err != nil {
			t.Fatal(err)
		}
		api.mustSend(200, "DELETE", definitionsPath+"/things.example.com", "")
		api.waitUntil("in progress", func() bool {
			return api.get(definitionsPath + "/things.example.com").conditions()["Terminating"] == "True InstanceDeletionInProgress"
		})
	})
	api := startServer(t, configure)
	stored, _, err := api.server.stores.store.Get(context.Background(), key, 0)
	if err != nil {
		t.Fatal(err)
	}
	// Remove the finalizer.
	if _, err := api.server.stores.store.Update(context.Background(), key,
		[]byte(`{"metadata":{"name":"held"}}`), stored.ModRevision, storage.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	api.waitUntil("gone", func() bool { return api.get(definitionsPath+"/things.example.com").code == 404 })
	if _, _, err := api.server.stores.store.Get(context.Background(), key, 0); err == nil {
		t.Error("got the object still stored, want it deleted")
	}
}

// TestCreateChecksNameInPath checks that a permission to create an object of one name does not
// create another one.
func TestCreateChecksNameInPath(t *testing.T) {
	t.Parallel()
	api := startServer(t, nil)
	api.mustSend(201, "POST", definitionsPath, definitionOf("things", "Thing", ""))
	const things = "/apis/example.com/v1/namespaces/default/things"
	for _, test := range []struct {
		name, metadata, message string
		code                    int
	}{
		{
			name:     "another name",
			metadata: `{"name":"b"}`,
			message:  "the name of the object (b) does not match the name on the URL (a)",
			code:     400,
		},
		{
			name:     "a generated name",
			metadata: `{"generateName":"b"}`,
			message:  "the name of the object (a based on URL) was undeterminable: name must be provided",
			code:     400,
		},
		{name: "no name", metadata: `{}`, message: "name or generateName is required", code: 422},
		{
			name:     "another namespace",
			metadata: `{"name":"a","namespace":"b"}`,
			message:  "the namespace of the provided object does not match the namespace sent on the request",
			code:     400,
		},
		{name: "its name", metadata: `{"name":"a"}`, code: 201},
	} {
		response := api.mustSend(test.code, "POST", things+"/a", `{"apiVersion":"example.com/v1","kind":"Thing","metadata":`+test.metadata+`}`)
		if message, _ := response.field("message").(string); !strings.Contains(message, test.message) {
			t.Errorf("%s: got message %s, want it to contain %q", test.name, message, test.message)
		}
	}
	if items, _ := api.get(things).field("items").([]any); len(items) != 1 {
		t.Errorf("got items %v, want one", items)
	}
}
