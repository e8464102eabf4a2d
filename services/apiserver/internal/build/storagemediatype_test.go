package build

import (
	"bytes"
	"encoding/json"
	"testing"

	"binnacle/services/apiserver/internal/config"
	"binnacle/services/apiserver/internal/storage/etcd/etcdtest"
)

const mediaTypePod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","labels":{"a":"b"}},"spec":{"nodeName":"n1","containers":[{"name":"c","image":"i"}]}}`

// TestObjectsAreReadableAfterStorageMediaTypeChange checks that servers with JSON and protobuf as the
// storage media type read the same stored objects, and that each writes its own media type.
func TestObjectsAreReadableAfterStorageMediaTypeChange(t *testing.T) {
	etcd := etcdtest.ListeningServer(t)
	startWith := func(mediaType string) *testServer {
		return startServer(t, func(options *config.Options) {
			options.Etcd.Backend = config.BackendEtcd
			options.Etcd.Servers = []string{etcd.Endpoint()}
			options.Compatibility.StorageMediaType = mediaType
			options.Admission.Disable = append(options.Admission.Disable, "ServiceAccount")
		})
	}
	const pods, hpas = "/api/v1/namespaces/default/pods", "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers"
	// 1. A server with JSON stores JSON, and its watches can select by field.
	jsonServer := startWith("application/json")
	watch := watchOf(jsonServer, pods+"?watch=true&fieldSelector=spec.nodeName%3Dn1")
	created := jsonServer.mustSend(201, "POST", pods, mediaTypePod)
	jsonServer.mustSend(201, "POST", hpas, `{"metadata":{"name":"h"},"spec":{"maxReplicas":3,"scaleTargetRef":{"kind":"Deployment","name":"d"}}}`)
	for key, version := range map[string]string{"pods/default/p": "v1", "horizontalpodautoscalers/default/h": "autoscaling/v2"} {
		stored, _, err := jsonServer.server.stores.store.Get(t.Context(), "/registry/"+key, 0)
		if err != nil {
			t.Fatal(err)
		}
		var head struct{ Kind, APIVersion string }
		if err := json.Unmarshal(stored.Value, &head); err != nil || head.APIVersion != version || head.Kind == "" {
			t.Errorf("%s: stored is %.60q (%v), want JSON of version %s with a kind", key, stored.Value, err, version)
		}
	}
	if e := watch.next(); e != "ADDED p" {
		t.Errorf("watch with a field selector: got event %q, want ADDED p", e)
	}
	// 2. Both servers read and select what was stored as JSON.
	protobufServer := startWith("application/vnd.kubernetes.protobuf")
	for _, server := range []*testServer{jsonServer, protobufServer} {
		if response := server.mustSend(200, "GET", pods+"/p", ""); !bytes.Equal(response.body, created.body) {
			t.Errorf("GET %s/p: got\n%s\nwant the created object\n%s", pods, response.body, created.body)
		}
		for _, query := range []string{"?labelSelector=a%3Db", "?fieldSelector=spec.nodeName%3Dn1"} {
			if n := len(server.mustSend(200, "GET", pods+query, "").field("items").([]any)); n != 1 {
				t.Errorf("%s: got %d items, want 1", query, n)
			}
		}
		server.mustSend(200, "GET", hpas+"/h", "")
	}
	// 3. A write of the server with protobuf changes the media type of the object.
	protobufServer.mustSend(200, "PUT", pods+"/p/status", `{"metadata":{"name":"p"},"status":{"phase":"Running"}}`)
	stored, _, err := protobufServer.server.stores.store.Get(t.Context(), "/registry/pods/default/p", 0)
	if err != nil || !bytes.HasPrefix(stored.Value, []byte("k8s\x00")) {
		t.Errorf("after a write with protobuf: stored is %.20q (%v), want prefix %q", stored.Value, err, "k8s\x00")
	}
}
