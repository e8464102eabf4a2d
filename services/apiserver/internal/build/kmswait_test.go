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
	on := func(o *config.Options) {
		o.Etcd.Backend = config.BackendEtcd
		o.Etcd.Servers = servers
		o.Encryption.ConfigFile = file
	}
	t.Run("before", func(t *testing.T) { start(t, on).want(201, "POST", secrets, secret("s", "value")) })

	plugin.HangMethod("Decrypt")
	api := start(t, on)
	api.flowOf("alice", "tiny", `{"type":"Reject"}`, 0) // one seat
	api.eventually("the schema counts", func() bool {
		return api.get(configMaps, as("alice")...).header.Get("X-Kubernetes-Pf-Prioritylevel-Uid") == api.get(flowLevels+
			"/tiny").at("metadata", "uid")
	})
	const dispatched = `apiserver_flowcontrol_dispatched_requests_total{flow_schema="of-alice",priority_level="tiny"}`
	responses := make(chan answer, 2)
	for _, send := range []func() answer{
		func() answer { return api.get(secrets+"/s", as("alice")...) },
		func() answer {
			return api.send("PATCH", secrets+"/s", `{"data":{"more":"YQ=="}}`, append(as("alice"), "Content-Type", mergePatch)...)
		},
	} {
		before := api.sample(dispatched)
		go func() { responses <- send() }()
		api.eventually("a seat", func() bool { return api.sample(dispatched) > before })
		api.eventually("other requests proceed", func() bool { return api.get(configMaps, as("alice")...).code == 200 })
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
