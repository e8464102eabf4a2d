package build

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"binnacle/services/apiserver/internal/config"
	"binnacle/services/apiserver/internal/storage/etcd/etcdtest"
)

const storageVersionsPath = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions"

func withStorageVersions(t *testing.T, options *config.Options) {
	t.Helper()
	if err := errors.Join(options.Features.Set("StorageVersionAPI=true,APIServerIdentity=true"),
		options.RuntimeConfig.Set("internal.apiserver.k8s.io/v1alpha1=true")); err != nil {
		t.Fatal(err)
	}
}

// TestReplicasPublishStorageVersions checks the versions of each replica and the condition that
// they agree.
func TestReplicasPublishStorageVersions(t *testing.T) {
	skipInShortMode(t)
	t.Parallel()
	etcd := etcdtest.ListeningServer(t)
	replica := func() *testServer {
		return startServer(t, func(options *config.Options) {
			options.Etcd.Backend = config.BackendEtcd
			options.Etcd.Servers = []string{etcd.Endpoint()}
			withStorageVersions(t, options)
		})
	}
	first := replica()
	second := replica()
	for _, r := range []*testServer{first, second} {
		r.mustSend(200, "GET", "/readyz/poststarthook/built-in-resources-storage-version-updater", "")
		r.mustSend(201, "POST", configMaps, configMap(fmt.Sprintf("of-%d", r.server.base.port)))
	}
	for name, want := range map[string]struct{ encoding, decodable string }{
		"core.pods":                            {encoding: "v1", decodable: "[v1]"},
		"core.events":                          {encoding: "v1", decodable: "[v1 events.k8s.io/v1]"},
		"apps.deployments":                     {encoding: "apps/v1", decodable: "[apps/v1]"},
		"autoscaling.horizontalpodautoscalers": {encoding: "autoscaling/v2", decodable: "[autoscaling/v1 autoscaling/v2]"},
	} {
		response := first.mustSend(200, "GET", storageVersionsPath+"/"+name, "")
		if common := fmt.Sprint(response.field("status", "commonEncodingVersion")); common != want.encoding {
			t.Errorf("%s: got common version %s, want %s", name, common, want.encoding)
		}
		entries, _ := response.field("status", "storageVersions").([]any)
		ids := map[any]bool{}
		for _, s := range entries {
			s := s.(map[string]any)
			ids[s["apiServerID"]] = true
			versions := fmt.Sprint(s["decodableVersions"])
			if s["encodingVersion"] != want.encoding || len(versions) != len(want.decodable) ||
				fmt.Sprint(s["servedVersions"]) != versions {
				t.Errorf("%s: got versions %v, want encoding %s and decodable %s, all served", name, s, want.encoding, want.decodable)
			}
		}
		if len(ids) != 2 {
			t.Errorf("%s: got servers %v, want 2", name, ids)
		}
		conditions, _ := response.field("status", "conditions").([]any)
		if len(conditions) != 1 || conditions[0].(map[string]any)["type"] != "AllEncodingVersionsEqual" ||
			conditions[0].(map[string]any)["status"] != "True" {
			t.Errorf("%s: got conditions %v, want only AllEncodingVersionsEqual, True", name, conditions)
		}
	}
	if got := first.get(storageVersionsPath + "/events.k8s.io.events"); got.code != http.StatusNotFound {
		t.Errorf("resource with the key prefix of another: got status %d, want 404", got.code)
	}
	silent := startServer(t, func(options *config.Options) { // publishes nothing without the gates
		if err := options.RuntimeConfig.Set("internal.apiserver.k8s.io/v1alpha1=true"); err != nil {
			t.Fatal(err)
		}
	})
	if items, _ := silent.get(storageVersionsPath).field("items").([]any); len(items) != 0 {
		t.Errorf("without the gates: got %d storage versions, want none", len(items))
	}
}

// TestUpdateWithoutChangeMigratesStorage checks that an update without changes rewrites an object
// in the storage version.
func TestUpdateWithoutChangeMigratesStorage(t *testing.T) {
	t.Parallel()
	api := startServer(t, nil)
	const scaler = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers"
	for _, test := range []struct{ name, key, path, stored, want string }{
		{
			name:   "in JSON",
			key:    "/registry/configmaps/default/j",
			path:   configMaps + "/j",
			stored: `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"j","namespace":"default","uid":"1","creationTimestamp":"2026-01-01T00:00:00Z"},"data":{"a":"b"}}`,
			want:   "k8s\x00",
		},
		{
			name:   "in an older version",
			key:    "/registry/horizontalpodautoscalers/default/h",
			path:   scaler + "/h",
			stored: `{"kind":"HorizontalPodAutoscaler","apiVersion":"autoscaling/v1","metadata":{"name":"h","namespace":"default","uid":"2","creationTimestamp":"2026-01-01T00:00:00Z"},"spec":{"scaleTargetRef":{"kind":"Deployment","name":"d","apiVersion":"apps/v1"},"maxReplicas":3,"targetCPUUtilizationPercentage":50},"status":{}}`,
			want:   "autoscaling/v2",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			api := &testServer{t: t, server: api.server, url: api.url, client: api.client}
			api.overwrite(test.key, test.stored)
			var before apiResponse
			api.waitUntil("there", func() bool { before = api.get(test.path); return before.code == 200 })
			after := api.mustSend(200, "PUT", test.path, string(before.body))
			if after.resourceVersion() == before.resourceVersion() {
				t.Errorf("got version %s unchanged, want the object rewritten", after.resourceVersion())
			}
			if got := string(api.stored(test.key)); !strings.HasPrefix(got, "k8s\x00") || !strings.Contains(got[:min(len(got), 80)], test.want) {
				t.Errorf("stored is %.80q, want protobuf of version %s", got, test.want)
			}
			if again := api.mustSend(200, "PUT", test.path, string(after.body)); again.resourceVersion() != after.resourceVersion() {
				t.Errorf("update of a current object: got version %s, want %s", again.resourceVersion(), after.resourceVersion())
			}
		})
	}
	t.Run("converted", func(t *testing.T) {
		checkOlderVersionsAreConverted(&testServer{t: t, server: api.server, url: api.url, client: api.client})
	})
}

// TestCustomStorageVersionsArePublished checks that replicas publish the versions of custom
// resources, and that a client may write one right after it was defined.
func TestCustomStorageVersionsArePublished(t *testing.T) {
	skipInShortMode(t)
	t.Parallel()
	etcd := etcdtest.ListeningServer(t)
	replica := func() *testServer {
		return startServer(t, func(options *config.Options) {
			options.Etcd.Backend = config.BackendEtcd
			options.Etcd.Servers = []string{etcd.Endpoint()}
			withStorageVersions(t, options)
		})
	}
	first := replica()
	first.mustSend(200, "GET", "/readyz/poststarthook/built-in-resources-storage-version-updater", "")
	definition := func(stored string) string {
		version := func(name string, served bool) string {
			return fmt.Sprintf(`{"name":%q,"served":%t,"storage":%t,"schema":{"openAPIV3Schema":{"type":"object"}}}`,
				name, served, name == stored)
		}
		return `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"things.example.com"},"spec":{"group":"example.com","scope":"Namespaced",
			"names":{"plural":"things","kind":"Thing"},"versions":[` +
			version("v1", true) + "," + version("v2", true) + "," + version("v0", false) + `]}}`
	}
	created := first.mustSend(201, "POST", definitionsPath, definition("v1"))
	first.mustSend(201, "POST", "/apis/example.com/v1/namespaces/default/things",
		`{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"a"}}`)
	// published returns the common version, and the versions of each replica.
	published := func() (common string, replicas map[string]string) {
		storageVersion := first.mustSend(200, "GET", storageVersionsPath+"/example.com.things", "")
		owners, _ := storageVersion.field("metadata", "ownerReferences").([]any)
		if len(owners) != 1 || fmt.Sprint(owners[0].(map[string]any)["uid"]) != fmt.Sprint(created.field("metadata", "uid")) {
			t.Errorf("got owners %v, want only the new definition", owners)
		}
		replicas = map[string]string{}
		all, _ := storageVersion.field("status", "storageVersions").([]any)
		for _, s := range all {
			s := s.(map[string]any)
			replicas[fmt.Sprint(s["apiServerID"])] = fmt.Sprint(s["encodingVersion"], s["decodableVersions"], s["servedVersions"])
		}
		return fmt.Sprint(storageVersion.field("status", "commonEncodingVersion")), replicas
	}
	const others = "[example.com/v1 example.com/v2 example.com/v0] [example.com/v1 example.com/v2]"
	hasVersion := func(version string, replicas int) func() bool {
		return func() bool {
			common, byReplica := published()
			for _, s := range byReplica {
				if s != version+" "+others && s != version+others {
					return false
				}
			}
			return common == version && len(byReplica) == replicas
		}
	}
	if !hasVersion("example.com/v1", 1)() { // published before the object was written
		t.Error(published())
	}
	replica()
	first.waitUntil("published by both", hasVersion("example.com/v1", 2))
	first.mustSend(200, "PATCH", definitionsPath+"/things.example.com",
		fmt.Sprintf(`{"spec":%s}`, strings.TrimSuffix(definition("v2")[strings.Index(definition("v2"), `"spec":`)+len(`"spec":`):],
			"}")), "Content-Type", mergePatch)
	first.waitUntil("published with the new version", hasVersion("example.com/v2", 2))
}

// TestWebhooksDoNotPreventStart checks that a replica registers the versions of built-in resources
// in spite of a policy and a webhook that reject them. Those of custom resources wait until the
// webhook is gone.
func TestWebhooksDoNotPreventStart(t *testing.T) {
	skipInShortMode(t)
	t.Parallel()
	etcd := etcdtest.ListeningServer(t)
	replica := func() *testServer {
		return startServer(t, func(options *config.Options) {
			options.Etcd.Backend = config.BackendEtcd
			options.Etcd.Servers = []string{etcd.Endpoint()}
			withStorageVersions(t, options)
		})
	}
	first := replica()
	first.mustSend(201, "POST", "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
		`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicy","metadata":{"name":"no"},
		"spec":{"matchConstraints":{"resourceRules":[{"apiGroups":["internal.apiserver.k8s.io"],"apiVersions":["*"],"operations":["*"],"resources":["*/*"]}]},"validations":[{"expression":"false"}]}}`)
	first.mustSend(201, "POST", "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
		`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicyBinding","metadata":{"name":"no"},"spec":{"policyName":"no","validationActions":["Deny"]}}`)
	first.mustSend(201, "POST", "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
		`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"MutatingWebhookConfiguration","metadata":{"name":"no"},
		"webhooks":[{"name":"no.example.com","clientConfig":{"url":"https://127.0.0.1:1/"},"sideEffects":"None","admissionReviewVersions":["v1"],
		"rules":[{"apiGroups":["internal.apiserver.k8s.io"],"apiVersions":["*"],"operations":["*"],"resources":["*/*"]}]}]}`)
	const other = `{"apiVersion":"internal.apiserver.k8s.io/v1alpha1","kind":"StorageVersion","metadata":{"name":"other.things"},"spec":{}}`
	first.waitUntil("rejected to clients", func() bool { return first.send("POST", storageVersionsPath, other).code >= 400 })
	second := replica()
	second.waitUntil("publishing storage versions", func() bool {
		return second.get("/readyz/poststarthook/built-in-resources-storage-version-updater").code == 200
	})
	second.mustSend(201, "POST", configMaps, configMap("c"))
	second.mustSend(201, "POST", definitionsPath, definitionOf("things", "Thing", ""))
	create := func() int {
		return second.send("POST", "/apis/example.com/v1/namespaces/default/things",
			`{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"a"}}`).code
	}
	if code := create(); code != 503 {
		t.Errorf("create before its version is published: got status %d, want 503", code)
	}
	second.mustSend(200, "DELETE", "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/no", "")
	second.mustSend(200, "DELETE", "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/no", "")
	second.waitUntil("registered without them", func() bool { return create() == 201 })
}

// TestStorageVersionsAreWithdrawn checks that a replica that restarts with fewer resources
// withdraws the others.
func TestStorageVersionsAreWithdrawn(t *testing.T) {
	skipInShortMode(t)
	t.Parallel()
	etcd := etcdtest.ListeningServer(t)
	replica := func(host, runtimeConfig string) *testServer {
		return startServer(t, func(options *config.Options) {
			options.Host = host
			options.Etcd.Backend = config.BackendEtcd
			options.Etcd.Servers = []string{etcd.Endpoint()}
			withStorageVersions(t, options)
			if err := options.RuntimeConfig.Set("internal.apiserver.k8s.io/v1alpha1=true," + runtimeConfig); err != nil {
				t.Fatal(err)
			}
		})
	}
	const cronJobs, nodes = storageVersionsPath + "/batch.cronjobs", storageVersionsPath + "/storage.k8s.io.csinodes"
	full := replica("first", "")
	limited := replica("second", "storage.k8s.io/v1=false")
	// servers returns the number of servers that published a version.
	servers := func(path string) int {
		all, _ := limited.get(path).field("status", "storageVersions").([]any)
		return len(all)
	}
	limited.mustSend(200, "GET", "/readyz/poststarthook/built-in-resources-storage-version-updater", "")
	if n := servers(cronJobs); n != 2 {
		t.Fatalf("storage version of cron jobs: got %d servers, want 2", n)
	}
	if n := servers(nodes); n != 1 {
		t.Fatalf("storage version of nodes: got %d servers, want 1", n)
	}
	full.stop()
	full = replica("first", "batch/v1=false,storage.k8s.io/v1=false")
	full.mustSend(200, "GET", "/readyz/poststarthook/built-in-resources-storage-version-updater", "")
	if n := servers(cronJobs); n != 1 {
		t.Errorf("after a server left: got %d servers of cron jobs, want 1", n)
	}
	if response := limited.get(nodes); response.code != http.StatusNotFound {
		t.Errorf("unserved resource: got status %d: %s, want 404", response.code, response.body)
	}
}

// checkOlderVersionsAreConverted checks values that an older Kubernetes stored: reads, watches and
// writes see the converted object, and a write stores it in the storage version.
func checkOlderVersionsAreConverted(api *testServer) {
	const budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
	const label = "pdb.kubernetes.io/deprecated-v1beta1-empty-selector-match"
	before := api.get(budgets).resourceVersion()
	api.overwrite("/registry/poddisruptionbudgets/default/old",
		`{"kind":"PodDisruptionBudget","apiVersion":"policy/v1beta1","metadata":{"name":"old","namespace":"default","uid":"u-1"},"spec":{"minAvailable":1,"selector":{}}}`)
	api.waitUntil("seen", func() bool { return api.get(budgets+"/old").code == http.StatusOK })
	for _, path := range []string{
		budgets + "/old", budgets, budgets + "?resourceVersion=0",
		budgets + "?watch=true&timeoutSeconds=1&resourceVersion=" + before,
	} {
		if text := string(api.mustSend(200, "GET", path, "").body); !strings.Contains(text, label) {
			api.t.Errorf("%s: got %s, want the label %s", path, text, label)
		}
	}
	live := api.mustSend(200, "GET", budgets+"/old", "")
	if text := string(api.mustSend(200, "PUT", budgets+"/old", string(live.body)).body); !strings.Contains(text, label) {
		api.t.Errorf("update: got %s, want the label %s", text, label)
	}
	if got := api.stored("/registry/poddisruptionbudgets/default/old"); !bytes.Contains(got, []byte("\x09policy/v1\x12")) ||
		!bytes.Contains(got, []byte(label)) {
		api.t.Errorf("stored is %q, want version policy/v1 and the label %s", got, label)
	}

	// A claim that was stored without dataSourceRef can be changed.
	const claims = "/api/v1/namespaces/default/persistentvolumeclaims"
	api.overwrite("/registry/persistentvolumeclaims/default/old",
		`{"kind":"PersistentVolumeClaim","apiVersion":"v1","metadata":{"name":"old","namespace":"default","uid":"u-2","finalizers":["kubernetes.io/pvc-protection"]},"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}},"dataSource":{"kind":"PersistentVolumeClaim","name":"other"},"volumeMode":"Filesystem"},"status":{"phase":"Pending"}}`)
	api.waitUntil("seen", func() bool { return api.get(claims+"/old").field("spec", "dataSourceRef", "name") == "other" })
	api.mustSend(200, "PATCH", claims+"/old", `{"metadata":{"finalizers":null}}`, "Content-Type", mergePatch)
	api.mustSend(200, "DELETE", claims+"/old", "")
	api.mustSend(404, "GET", claims+"/old", "")

	// Unknown versions are not decoded.
	api.overwrite("/registry/configmaps/default/unknown",
		`{"kind":"ConfigMap","apiVersion":"v7","metadata":{"name":"unknown","namespace":"default"},"data":{"a":"b"}}`)
	for _, path := range []string{configMaps + "/unknown", configMaps} {
		if text := string(api.mustSend(500, "GET", path, "").body); !strings.Contains(text,
			`no kind \"ConfigMap\" is registered for version \"v7\"`) {
			api.t.Errorf("%s: got %s, want the error that ConfigMap has no version v7", path, text)
		}
	}
	api.mustSend(500, "PATCH", configMaps+"/unknown", `{"data":{"a":"c"}}`, "Content-Type", mergePatch)
}
