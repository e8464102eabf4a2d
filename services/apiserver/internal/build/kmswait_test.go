package build

import (
	"path/filepath"
	"testing"

	"binnacle/services/apiserver/internal/config"
	"binnacle/services/apiserver/internal/storage/encryption/kms/kmstest"
	"binnacle/services/apiserver/internal/storage/etcd/etcdtest"
)

// TestKMSPluginCallReleasesSeats checks that a request releases its seats while it waits for a KMS
// plugin.
func TestKMSPluginCallReleasesSeats(t *testing.T) {
	skipInShortMode(t)
	t.Parallel()
	plugin := kmstest.New(t)
	servers := []string{etcdtest.ListeningServer(t).Endpoint()}
	file := filepath.Join(t.TempDir(), "enc.yaml")
	replaceFile(t, file, encrypting("secrets",
		"kms: {apiVersion: v2, name: rec, endpoint: '"+plugin.Endpoint()+"', timeout: 5m}", "identity: {}"))
	configure := func(options *config.Options) {
		options.Etcd.Backend = config.BackendEtcd
		options.Etcd.Servers = servers
		options.Encryption.ConfigFile = file
	}
	t.Run("before", func(t *testing.T) { startServer(t, configure).mustSend(201, "POST", secrets, secret("s", "value")) })

	plugin.HangMethod("Decrypt")
	api := startServer(t, configure)
	api.createFlow("alice", "tiny", `{"type":"Reject"}`, 0) // one seat
	api.waitUntil("the schema counts", func() bool {
		return api.get(configMaps, asUser("alice")...).header.Get("X-Kubernetes-Pf-Prioritylevel-Uid") == api.get(flowLevels+
			"/tiny").field("metadata", "uid")
	})
	const dispatched = `apiserver_flowcontrol_dispatched_requests_total{flow_schema="of-alice",priority_level="tiny"}`
	responses := make(chan apiResponse, 2)
	for _, send := range []func() apiResponse{
		func() apiResponse { return api.get(secrets+"/s", asUser("alice")...) },
		func() apiResponse {
			return api.send("PATCH", secrets+"/s", `{"data":{"more":"YQ=="}}`, append(asUser("alice"), "Content-Type", mergePatch)...)
		},
	} {
		before := api.metricValue(dispatched)
		go func() { responses <- send() }()
		api.waitUntil("a seat", func() bool { return api.metricValue(dispatched) > before })
		api.waitUntil("other requests proceed", func() bool { return api.get(configMaps, asUser("alice")...).code == 200 })
		if len(responses) > 0 {
			t.Fatalf("got status %d while the plugin hangs, want no response yet", (<-responses).code)
		}
	}
	plugin.Resume()
	for range 2 {
		if r := <-responses; r.code != 200 {
			t.Errorf("got status %d: %s, want status 200", r.code, r.body)
		}
	}
}
