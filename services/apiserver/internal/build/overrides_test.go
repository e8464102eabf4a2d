package build

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"binnacle/services/apiserver/internal/config"
	"binnacle/services/apiserver/internal/storage"
	"binnacle/services/apiserver/internal/storage/etcd/embedded"
	"binnacle/services/apiserver/internal/storage/etcd/etcdtest"
)

// startSecondEtcd starts an etcd that a test can stop and start again with the same data.
func startSecondEtcd(t *testing.T, socket, data string) *embedded.Server {
	t.Helper()
	server, err := embedded.Start(t.Context(), embedded.Options{
		DataDir:      data,
		ListenClient: "unix://" + socket,
		StopTimeout:  100 * time.Millisecond,
		Logger:       etcdtest.Logger(t),
	})
	if err != nil {
		t.Fatal(err)
	}
	return server
}

// stopAfter stops an etcd at the end of the test, after its clients. A server that outlives its etcd
// waits for timeouts when it stops.
func stopAfter(t *testing.T, etcd *embedded.Server, clients ...*testServer) {
	t.Helper()
	t.Cleanup(func() {
		for _, client := range clients {
			client.stop()
		}
		etcd.Stop()
	})
}

const (
	eventsPath      = "/api/v1/namespaces/default/events"
	deploymentsPath = "/apis/apps/v1/namespaces/default/deployments"
	deploymentOne   = `{"metadata":{"name":"d"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`
)

// eventOf returns a minimal event.
func eventOf(name string) string {
	return fmt.Sprintf(`{"metadata":{"name":%q},"involvedObject":{"namespace":"default"},"message":"m"}`, name)
}

// TestOverriddenResourcesAreStoredInTheirCluster checks two replicas on two etcd clusters with one stream
// each: the stored objects, their revisions, and the effect of an unavailable cluster.
func TestOverriddenResourcesAreStoredInTheirCluster(t *testing.T) {
	skipInShortMode(t)
	t.Parallel()
	dir := t.TempDir()
	socket := filepath.Join(dir, "s")
	data := filepath.Join(dir, "data")
	main := etcdtest.ListeningServer(t)
	other := startSecondEtcd(t, socket, data)
	bus := startBus(t)
	encryption := filepath.Join(dir, "enc.yaml")
	replaceFile(t, encryption, encrypting("deployments.apps", keyed("aesgcm", "k1", firstSecret), "identity: {}"))
	replica := func() *testServer {
		return startServer(t, func(options *config.Options) {
			options.Etcd.Backend = config.BackendEtcd
			options.Etcd.Servers = []string{main.Endpoint()}
			options.Etcd.Overrides = []string{"/events#unix://" + socket, "apps/deployments#unix://" + socket}
			options.Fanout.Servers = []string{bus.ClientURL()}
			options.Encryption.ConfigFile = encryption
		})
	}
	first := replica()
	second := replica()
	if n := len(first.server.stores.overrideClusters); n != 1 {
		t.Fatalf("got %d clusters beside the main one, want 1", n)
	}
	storedValue := func(s storage.Interface, key string) []byte {
		stored, _, err := s.Get(t.Context(), key, 0)
		if err != nil && !errors.Is(err, storage.ErrNotFound) {
			t.Fatal(err)
		}
		return stored.Value
	}
	event := first.mustSend(201, "POST", eventsPath, eventOf("e"))
	first.mustSend(201, "POST", deploymentsPath, deploymentOne)
	first.mustSend(201, "POST", configMaps, configMap("c"))
	overrideStore := first.server.stores.overrideClusters[0].store
	for key, inOverride := range map[string]bool{
		"/registry/events/default/e": true, "/registry/deployments/default/d": true,
		"/registry/configmaps/default/c": false,
	} {
		if got := storedValue(overrideStore, key) != nil; got != inOverride {
			t.Errorf("%s in the other cluster: got %t, want %t", key, got, inOverride)
		}
		if got := storedValue(first.server.stores.store, key) != nil; got == inOverride {
			t.Errorf("%s in the main cluster: got %t, want %t", key, got, !inOverride)
		}
	}
	if v := storedValue(overrideStore, "/registry/deployments/default/d"); !strings.HasPrefix(string(v), "k8s:enc:aesgcm:v1:k1:") {
		t.Errorf("Deployment: stored is %.30q, want prefix k8s:enc:aesgcm:v1:k1:", v)
	}
	// The other replica returns the same objects in each kind of read.
	for _, path := range []string{eventsPath + "/e", "/apis/events.k8s.io/v1/namespaces/default/events/e", deploymentsPath + "/d"} {
		second.mustSend(200, "GET", path, "")
	}
	list := second.mustSend(200, "GET", eventsPath, "")
	if revision, err := overrideStore.Revision(t.Context()); err != nil || atoi(t, list.resourceVersion()) > revision ||
		atoi(t, list.resourceVersion()) < atoi(t, event.resourceVersion()) {
		t.Errorf("got list at %s, want between its event at %s and the cluster at %d (error %v)",
			list.resourceVersion(), event.resourceVersion(), revision, err)
	}
	second.waitUntil("fed by the stream", func() bool {
		s := second.server.stores.overrideClusters[0].fanout.State().Source
		return s == "nats" || s == "local"
	})
	// A watch resumes from revisions of the other cluster.
	events := watchOf(second, eventsPath+"?watch=true&resourceVersion="+list.resourceVersion())
	first.mustSend(201, "POST", eventsPath, eventOf("f"))
	if got := events.next(); got != "ADDED f" {
		t.Errorf("got event %s, want ADDED f", got)
	}
	metrics := string(first.get("/metrics").body)
	for _, want := range []string{
		`apiserver_storage_size_bytes{etcd_cluster="etcd-override-0",storage_cluster_id="etcd-1"}`,
		`apiserver_storage_size_bytes{storage_cluster_id="etcd-0"}`,
		`etcd_requests_total{etcd_cluster="etcd-override-0",operation="create",type="events"}`,
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("got no metric %s, want one", want)
		}
	}
	first.mustSend(200, "GET", "/readyz/etcd-override-0", "")

	other.Stop()
	for _, r := range []*testServer{first, second} {
		r.waitUntil("health check fails", func() bool {
			return r.get("/readyz/etcd-override-0").code == http.StatusInternalServerError
		})
		if got := r.get("/readyz?verbose"); got.code != 200 ||
			!strings.Contains(string(got.body), "[-]etcd-override-0 failed: reason withheld, does not count") {
			t.Errorf("/readyz: got status %d: %s, want 200 and a failing check that does not count", got.code, got.body)
		}
		r.mustSend(200, "GET", "/livez", "")
		r.mustSend(200, "GET", configMaps, "")
		r.mustSend(200, "GET", eventsPath+"?resourceVersion=0", "")
	}
	first.mustSend(201, "POST", configMaps, configMap("meanwhile"))
	if response := first.send("POST", eventsPath+"?timeout=200ms", eventOf("lost")); response.code < 500 {
		t.Errorf("write without its cluster: got status %d, want a server error", response.code)
	}
	if got := second.get(eventsPath + "?timeout=200ms"); got.code < 500 {
		t.Errorf("read without its cluster: got status %d, want a server error", got.code)
	}

	restarted := startSecondEtcd(t, socket, data)
	stopAfter(t, restarted, first, second)
	first.waitUntil("writable", func() bool { return first.send("POST", eventsPath, eventOf("g")).code == 201 })
	for got := events.next(); got != "ADDED g"; got = events.next() {
		if got != "ADDED lost" {
			t.Fatalf("got event %s, want ADDED lost", got)
		}
	}
	second.mustSend(200, "GET", eventsPath+"/g", "")
}

// TestResourcesOfUnavailableOverrideAreNotEmpty checks that requests for resources of an unavailable
// cluster fail, and do not return empty lists.
func TestResourcesOfUnavailableOverrideAreNotEmpty(t *testing.T) {
	skipInShortMode(t)
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "s")
	api := startServer(t, func(options *config.Options) {
		onEtcd(t)(options)
		options.Etcd.Overrides = []string{"policy/poddisruptionbudgets#unix://" + socket, "apps/deployments#unix://" + socket}
	})
	api.createDefaultAccount()
	api.createPod("p", "n", ready)
	for _, path := range []string{
		deploymentsPath + "?resourceVersion=0", deploymentsPath + "/d?resourceVersion=0",
		deploymentsPath + "/d/scale?resourceVersion=0", deploymentsPath + "?watch=true&resourceVersion=0",
	} {
		api.mustSend(429, "GET", path, "")
	}
	if response := api.send("POST", podsPath+"/p/eviction?timeout=200ms", eviction("p", "")); response.code < 500 {
		t.Errorf("eviction without budgets: got status %d: %s, want a server error", response.code, response.body)
	}
	api.mustSend(201, "POST", policiesPath,
		`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicy","metadata":{"name":"p"},"spec":{"paramKind":{"apiVersion":"apps/v1","kind":"Deployment"},"matchConstraints":{"resourceRules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["configmaps"]}]},"validations":[{"expression":"false"}]}}`)
	api.mustSend(201, "POST", bindingsPath, policyBinding("p", denyAction+`,"paramRef":{"name":"d","parameterNotFoundAction":"Allow"}`))
	if response := api.send("POST", configMaps, configMap("c")); response.code < 400 {
		t.Errorf("policy with unreadable parameters: got status %d, want the request rejected", response.code)
	}
	started := startSecondEtcd(t, socket, filepath.Join(t.TempDir(), "data"))
	stopAfter(t, started, api)
	api.waitUntil("loaded", func() bool { return api.send("GET", deploymentsPath+"?resourceVersion=0", "").code == 200 })
	api.mustSend(201, "POST", configMaps, configMap("c"))
	api.mustSend(201, "POST", podsPath+"/p/eviction", eviction("p", ""))
}

// TestStreamsOfOneEtcdHaveOwnPublishers checks that each stream has a publisher if one etcd stores
// the resources of several.
func TestStreamsOfOneEtcdHaveOwnPublishers(t *testing.T) {
	skipInShortMode(t)
	t.Parallel()
	main := etcdtest.ListeningServer(t)
	bus := startBus(t)
	api := startServer(t, func(options *config.Options) {
		options.Etcd.Backend = config.BackendEtcd
		options.Etcd.Servers = []string{main.Endpoint()}
		options.Etcd.Overrides = []string{"/events#" + main.Endpoint()}
		options.Fanout.Servers = []string{bus.ClientURL()}
	})
	api.waitUntil("published", func() bool {
		return api.server.stores.fanout.State().Publisher && api.server.stores.overrideClusters[0].fanout.State().Publisher
	})
}

// TestRestoredOverrideReloadsItsResources checks that only the resources of a restored cluster are
// reloaded, and that only their watches end.
func TestRestoredOverrideReloadsItsResources(t *testing.T) {
	skipInShortMode(t)
	t.Parallel()
	dir := t.TempDir()
	socket := filepath.Join(dir, "s")
	other := startSecondEtcd(t, socket, filepath.Join(dir, "data"))
	api := startServer(t, func(options *config.Options) {
		onEtcd(t)(options)
		options.Etcd.Overrides = []string{"/events#unix://" + socket}
	})
	for _, name := range []string{"a", "b", "c"} {
		api.mustSend(201, "POST", eventsPath, eventOf(name))
	}
	api.mustSend(201, "POST", configMaps, configMap("c"))
	events := watchOf(api, eventsPath+"?watch=true&resourceVersion="+api.get(eventsPath).resourceVersion())
	others := watchOf(api, configMaps+"?watch=true&resourceVersion="+api.get(configMaps).resourceVersion())
	other.Stop()
	restarted := startSecondEtcd(t, socket, filepath.Join(dir, "empty"))
	stopAfter(t, restarted, api)
	api.waitUntil("aware of the other history", func() bool { return api.server.stores.overrideClusters[0].cache.Incarnation() == 1 })
	api.waitUntil("reloaded", func() bool {
		response := api.get(eventsPath)
		items, _ := response.field("items").([]any)
		return response.code == 200 && len(items) == 0
	})
	if got := events.next(); got != "ERROR " {
		t.Errorf("watch of a reloaded resource: got event %q, want an error", got)
	}
	api.mustSend(201, "POST", configMaps, configMap("d"))
	if got := others.next(); got != "ADDED d" || api.server.caches.cache.Incarnation() != 0 {
		t.Errorf("watch of another resource: got event %s, incarnation %d, want ADDED d and 0", got, api.server.caches.cache.Incarnation())
	}
	api.mustSend(201, "POST", eventsPath, eventOf("e"))
}

// atoi parses a revision.
func atoi(t *testing.T, text string) int64 {
	t.Helper()
	number, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return number
}

// watched holds the events of a running watch.
type watched struct {
	api     *testServer
	decoder *json.Decoder
}

// watchOf opens a watch for the duration of the test.
func watchOf(api *testServer, path string) *watched {
	api.t.Helper()
	client := &http.Client{Transport: api.client.Transport}
	httpResponse, err := client.Get(api.url + path)
	if err != nil || httpResponse.StatusCode != 200 {
		api.t.Fatalf("got %v %v, want no error and 200", httpResponse, err)
	}
	api.t.Cleanup(func() { httpResponse.Body.Close() })
	return &watched{api, json.NewDecoder(httpResponse.Body)}
}

// next returns the type of the next event and the name of its object.
func (w *watched) next() string {
	var e struct {
		Type   string
		Object struct{ Metadata struct{ Name string } }
	}
	if err := w.decoder.Decode(&e); err != nil {
		w.api.t.Fatal(err)
	}
	return e.Type + " " + e.Object.Metadata.Name
}
