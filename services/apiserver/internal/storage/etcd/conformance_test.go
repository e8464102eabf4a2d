package etcd_test

import (
	"flag"
	"strconv"
	"testing"

	"go.uber.org/goleak"

	"binnacle/services/apiserver/internal/storage"
	"binnacle/services/apiserver/internal/storage/etcd/etcdtest"
	"binnacle/services/apiserver/internal/storage/storagetest"
)

// parallelTests is the number of tests that run at a time without -parallel. Most tests wait for
// leases and elections of a real etcd, whose shortest lease lasts a second.
const parallelTests = 8

// TestMain fails if a test leaves goroutines behind. It limits the number of parallel tests, unless
// a flag sets it.
func TestMain(m *testing.M) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		_ = flag.Set("test.parallel", strconv.Itoa(parallelTests))
	}
	goleak.VerifyTestMain(m)
}

// TestConformanceOfEmbeddedEtcd runs the conformance suite on embedded servers.
func TestConformanceOfEmbeddedEtcd(t *testing.T) {
	t.Parallel()
	storagetest.Run(t, func(t *testing.T) storage.Interface { return etcdtest.Embedded(t) })
}

// TestConformanceOfDialedEtcd uses the same server over the network, as a client of a cluster does.
func TestConformanceOfDialedEtcd(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("repeats the suite of the embedded server")
	}
	open := func(t *testing.T) storage.Interface {
		return etcdtest.OpenEmptied(t, etcdtest.ListeningServer(t).Endpoint())
	}
	storagetest.Run(t, open)
	storagetest.RunReplaced(t, open)
}

// TestConformanceOfExternalEtcd runs the conformance suite on the external etcd, if one is configured.
func TestConformanceOfExternalEtcd(t *testing.T) {
	storagetest.Run(t, func(t *testing.T) storage.Interface { return etcdtest.OpenExternalEmptied(t) })
}
