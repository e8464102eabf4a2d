package app

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"binnacle/services/apiserver/internal/storage/etcd/etcdtest"
)

const storageVersionsPath = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions"

func sayingVersions(t *testing.T, o *Options) {
	t.Helper()
	if err := errors.Join(o.Features.Set("StorageVersionAPI=true,APIServerIdentity=true"), o.RuntimeConfig.Set("internal.apiserver.k8s.io/v1alpha1=true")); err != nil {
		t.Fatal(err)
	}
}

// TestReplicasSayWhatTheyStore, each by its name, and whether they agree.
func TestReplicasSayWhatTheyStore(t *testing.T) {
	etcd := etcdtest.Listening(t)
	replica := func() *api {
		return start(t, func(o *Options) {
			o.Etcd.Servers = []string{etcd.Endpoint()}
			sayingVersions(t, o)
		})
	}
	a, b := replica(), replica()
	for _, r := range []*api{a, b} {
		r.want(200, "GET", "/readyz/poststarthook/built-in-resources-storage-version-updater", "")
		r.want(201, "POST", configMaps, configMap(fmt.Sprintf("of-%d", r.parts.boundPort())))
	}
	for name, want := range map[string]struct{ encoding, decodable string }{
		"core.pods":                            {"v1", "[v1]"},
		"core.events":                          {"v1", "[v1 events.k8s.io/v1]"},
		"apps.deployments":                     {"apps/v1", "[apps/v1]"},
		"autoscaling.horizontalpodautoscalers": {"autoscaling/v2", "[autoscaling/v1 autoscaling/v2]"},
	} {
		v := a.want(200, "GET", storageVersionsPath+"/"+name, "")
		if common := fmt.Sprint(v.at("status", "commonEncodingVersion")); common != want.encoding {
			t.Errorf("%s: common version %s", name, common)
		}
		said, _ := v.at("status", "storageVersions").([]any)
		ids := map[any]bool{}
		for _, s := range said {
			s := s.(map[string]any)
			ids[s["apiServerID"]] = true
			versions := fmt.Sprint(s["decodableVersions"])
			if s["encodingVersion"] != want.encoding || len(versions) != len(want.decodable) || fmt.Sprint(s["servedVersions"]) != versions {
				t.Errorf("%s: a replica says %v", name, s)
			}
		}
		if len(ids) != 2 {
			t.Errorf("%s: said by %v", name, ids)
		}
		conditions, _ := v.at("status", "conditions").([]any)
		if len(conditions) != 1 || conditions[0].(map[string]any)["type"] != "AllEncodingVersionsEqual" || conditions[0].(map[string]any)["status"] != "True" {
			t.Errorf("%s: conditions %v", name, conditions)
		}
	}
	if got := a.get(storageVersionsPath + "/events.k8s.io.events"); got.code != http.StatusNotFound {
		t.Errorf("what is stored at one place is told of twice: %d", got.code)
	}
	silent := start(t, func(o *Options) { // without the gates nothing is said
		if err := o.RuntimeConfig.Set("internal.apiserver.k8s.io/v1alpha1=true"); err != nil {
			t.Fatal(err)
		}
	})
	if items, _ := silent.get(storageVersionsPath).at("items").([]any); len(items) != 0 {
		t.Errorf("without the gates %d are told of", len(items))
	}
}

// TestUpdatesRewriteWhatIsStored: an update that changes nothing is what those who migrate
// stored objects send.
func TestUpdatesRewriteWhatIsStored(t *testing.T) {
	a := start(t, nil)
	const scaler = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers"
	for _, c := range []struct{ name, key, path, stored, want string }{
		{"in JSON", "/registry/configmaps/default/j", configMaps + "/j", `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"j","namespace":"default","uid":"1","creationTimestamp":"2026-01-01T00:00:00Z"},"data":{"a":"b"}}`, "k8s\x00"},
		{"in an older version", "/registry/horizontalpodautoscalers/default/h", scaler + "/h", `{"kind":"HorizontalPodAutoscaler","apiVersion":"autoscaling/v1","metadata":{"name":"h","namespace":"default","uid":"2","creationTimestamp":"2026-01-01T00:00:00Z"},"spec":{"scaleTargetRef":{"kind":"Deployment","name":"d","apiVersion":"apps/v1"},"maxReplicas":3,"targetCPUUtilizationPercentage":50},"status":{}}`, "autoscaling/v2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := &api{t: t, parts: a.parts, url: a.url, client: a.client}
			a.behind(c.key, c.stored)
			var before answer
			a.eventually("there", func() bool { before = a.get(c.path); return before.code == 200 })
			after := a.want(200, "PUT", c.path, string(before.body))
			if after.version() == before.version() {
				t.Error("nothing was written")
			}
			if got := string(a.stored(c.key)); !strings.HasPrefix(got, "k8s\x00") || !strings.Contains(got[:min(len(got), 80)], c.want) {
				t.Errorf("stored as %.80q", got)
			}
			if again := a.want(200, "PUT", c.path, string(after.body)); again.version() != after.version() {
				t.Error("it was written again")
			}
		})
	}
}
