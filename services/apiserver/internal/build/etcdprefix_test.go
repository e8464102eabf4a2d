package build

import (
	"testing"

	"binnacle/services/apiserver/internal/config"
	"binnacle/services/apiserver/internal/storage/etcd/etcdtest"
)

// TestEtcdPrefixGetsLeadingSlash checks that keys are stored below the cleaned --etcd-prefix.
func TestEtcdPrefixGetsLeadingSlash(t *testing.T) {
	for prefix, root := range map[string]string{"/registry": "/registry", "a/registry": "/a/registry", "a//b/": "/a/b"} {
		t.Run(prefix, func(t *testing.T) {
			etcd := etcdtest.ListeningServer(t)
			api := startServer(t, func(options *config.Options) {
				options.Etcd.Backend = config.BackendEtcd
				options.Etcd.Servers = []string{etcd.Endpoint()}
				options.Etcd.Prefix = prefix
			})
			api.mustSend(201, "POST", configMaps, configMap("c"))
			if _, _, err := api.server.stores.store.Get(t.Context(), root+"/configmaps/default/c", 0); err != nil {
				t.Error(err)
			}
		})
	}
}
