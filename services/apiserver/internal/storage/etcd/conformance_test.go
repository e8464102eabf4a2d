package etcd_test

import (
	"testing"

	"go.uber.org/goleak"

	"binnacle/services/apiserver/internal/storage"
	"binnacle/services/apiserver/internal/storage/etcd/etcdtest"
	"binnacle/services/apiserver/internal/storage/storagetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformanceEmbedded(t *testing.T) {
	t.Parallel()
	storagetest.Run(t, func(t *testing.T) storage.Interface { return etcdtest.Embedded(t) })
}

// TestConformanceDialed reaches the same server over the network, as a client
// of a cluster does.
func TestConformanceDialed(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("the same suite as in process")
	}
	open := func(t *testing.T) storage.Interface { return etcdtest.Dial(t, etcdtest.Listening(t).Endpoint()) }
	storagetest.Run(t, open)
	storagetest.RunReplaced(t, open)
}

func TestConformanceExternal(t *testing.T) {
	storagetest.Run(t, func(t *testing.T) storage.Interface { return etcdtest.External(t) })
}
