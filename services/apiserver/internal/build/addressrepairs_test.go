package build

import (
	"testing"

	"binnacle/services/apiserver/internal/storage"
)

// TestMissingIPAddressIsCreated checks that the repair creates the IPAddress of a service that
// lacks one, and again after its deletion. It does not replace the IPAddress of another owner.
func TestMissingIPAddressIsCreated(t *testing.T) {
	api := startServer(t, nil)
	const stored = `{"apiVersion":"v1","kind":"Service","metadata":{"name":"old","namespace":"default","uid":"08675309-9376-9376-9376-086753099999"},"spec":{"type":"ClusterIP","clusterIP":"10.0.0.77","ports":[{"port":80}]}}`
	if _, err := api.server.stores.store.Create(t.Context(), api.server.base.root+"/services/specs/default/old",
		[]byte(stored), storage.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	exists := func() bool { return api.get(addressesPath+"/10.0.0.77").code == 200 }
	api.waitUntil("created for a service that another server stored", exists)
	uid := api.get(addressesPath+"/10.0.0.77").field("metadata", "uid")
	api.mustSend(200, "DELETE", addressesPath+"/10.0.0.77", "")
	api.waitUntil("created after its deletion", func() bool {
		return exists() && api.get(addressesPath+"/10.0.0.77").field("metadata", "uid") != uid
	})

	// The address of this service has another owner when the service appears.
	api.mustSend(201, "POST", addressesPath,
		`{"metadata":{"name":"10.0.0.78","labels":{"ipaddress.kubernetes.io/managed-by":"ipallocator.k8s.io","ipaddress.kubernetes.io/ip-family":"IPv4"}},"spec":{"parentRef":{"resource":"services","namespace":"default","name":"other"}}}`)
	const second = `{"apiVersion":"v1","kind":"Service","metadata":{"name":"second","namespace":"default","uid":"08675309-9376-9376-9376-086753099998"},"spec":{"type":"ClusterIP","clusterIP":"10.0.0.78","ports":[{"port":80}]}}`
	if _, err := api.server.stores.store.Create(t.Context(),
		api.server.base.root+"/services/specs/default/second", []byte(second), storage.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	api.mustSend(200, "DELETE", addressesPath+"/10.0.0.78", "")
	api.waitUntil("created for the service that has the address", func() bool {
		return api.get(addressesPath+"/10.0.0.78").field("spec", "parentRef", "name") == "second"
	})
}
