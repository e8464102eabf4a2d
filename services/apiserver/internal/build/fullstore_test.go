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
	on := func(o *config.Options) {
		o.Etcd.Backend = config.BackendEtcd
		o.Etcd.Servers = []string{etcd.Endpoint()}
	}
	t.Run("before", func(t *testing.T) {
		start(t, on).want(201, "POST", configMaps, configMap("much"))
	})
	// Free some space first.
	if r, err := etcd.Client().Delete(t.Context(), "/registry/namespaces/kube-node-lease"); err != nil || r.Deleted != 1 {
		t.Fatalf("got %+v, %v, want one deleted key", r, err)
	}
	etcdtest.FillQuota(t, etcd)
	a := start(t, on)
	a.want(200, "GET", "/livez", "")
	if r := a.want(500, "POST", configMaps, configMap("more")); !strings.Contains(string(r.body),
		"etcdserver: mvcc: database space exceeded") {
		t.Errorf("write to a full store: got %s, want the error of etcd: database space exceeded", r.body)
	}
	a.want(200, "GET", configMaps+"/much", "")
	a.want(200, "DELETE", configMaps+"/much", "")
	a.want(404, "GET", configMaps+"/much", "")
}
