package build

import (
	"fmt"
	"strings"
	"testing"

	"binnacle/services/apiserver/internal/config"
)

// TestFullDatabaseAllowsDeletions checks that clients get a clear error, and may delete.
func TestFullDatabaseAllowsDeletions(t *testing.T) {
	skipInShortMode(t)
	t.Parallel()
	api := startServer(t, func(options *config.Options) {
		onEtcd(t)(options)
		options.Etcd.Embedded.QuotaBytes = config.MinQuota
	})
	for i := range 40 {
		response := api.send("POST", configMaps, configMap(fmt.Sprint("c", i), "k", strings.Repeat("v", 900_000)))
		if response.code == 201 {
			continue
		}
		if response.code != 500 || !strings.HasSuffix(fmt.Sprint(response.field("message")), "etcdserver: mvcc: database space exceeded") {
			t.Errorf("got status %d: %s, want status 500 and a text that ends with %q",
				response.code, response.body, "etcdserver: mvcc: database space exceeded")
		}
		api.mustSend(200, "DELETE", configMaps+"/c0", "")
		if m := api.get("/metrics"); !strings.Contains(string(m.body), "binnacle_embedded_etcd_full 1") {
			t.Error("got a metric that does not report the full database, want binnacle_embedded_etcd_full 1")
		}
		return
	}
	t.Error("got no error after 40 writes, want one at the quota")
}
