package build

import (
	"strings"
	"testing"

	"binnacle/services/apiserver/internal/config"
	"binnacle/services/apiserver/internal/storage/etcd/etcdtest"
)

// TestServerStartsWithFullStore checks that it becomes ready, so that clients can delete objects.
func TestServerStartsWithFullStore(t *testing.T) {
	skipInShortMode(t)
	t.Parallel()
	etcd := etcdtest.ListeningServer(t)
	configure := func(options *config.Options) {
		options.Etcd.Backend = config.BackendEtcd
		options.Etcd.Servers = []string{etcd.Endpoint()}
	}
	t.Run("before", func(t *testing.T) {
		startServer(t, configure).mustSend(201, "POST", configMaps, configMap("much"))
	})
	// Free some space first.
	if r, err := etcd.Client().Delete(t.Context(), "/registry/namespaces/kube-node-lease"); err != nil || r.Deleted != 1 {
		t.Fatalf("got %+v, %v, want one deleted key", r, err)
	}
	etcdtest.FillQuota(t, etcd)
	api := startServer(t, configure)
	api.mustSend(200, "GET", "/livez", "")
	if response := api.mustSend(500, "POST", configMaps, configMap("more")); !strings.Contains(string(response.body),
		"etcdserver: mvcc: database space exceeded") {
		t.Errorf("write to a full store: got %s, want the error of etcd: database space exceeded", response.body)
	}
	api.mustSend(200, "GET", configMaps+"/much", "")
	api.mustSend(200, "DELETE", configMaps+"/much", "")
	api.mustSend(404, "GET", configMaps+"/much", "")
}
