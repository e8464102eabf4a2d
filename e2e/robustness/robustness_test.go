package robustness

import (
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/klog/v2"

	"binnacle/e2e/harness"
)

const (
	longEnv = "BINNACLE_ROBUSTNESS"
	timeEnv = "BINNACLE_ROBUSTNESS_TIME"
)

// parallelClusters is the number of clusters that run in parallel.
const parallelClusters = 3

func TestMain(m *testing.M) {
	// client-go logs every lost connection.
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	flag.Parse()
	// The suites mostly wait for their own processes.
	if err := flag.Set("test.parallel", strconv.Itoa(parallelClusters)); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// heapTolerance is the allowed heap growth. Caches fill, and every round leaves objects behind.
const heapTolerance = 96 << 20

// randomSeed returns the seed from the environment or a new one.
func randomSeed(t *testing.T) uint64 {
	t.Helper()
	n := rand.Uint64()
	if s := os.Getenv(seedEnv); s != "" {
		var err error
		if n, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatalf("%s: %v", seedEnv, err)
		}
	}
	t.Logf("%s=%d", seedEnv, n)
	return n
}

// briefDuration returns how long a brief fault lasts in the short tests.
func briefDuration(random *rand.Rand) time.Duration {
	return 100*time.Millisecond + time.Duration(random.Int64N(int64(900*time.Millisecond)))
}

// runFaults runs one scenario per fault on one cluster in random order.
func runFaults(t *testing.T, shape topology, faults []fault) {
	t.Parallel()
	c := StartCluster(t, shape, randomSeed(t))
	c.rand.Shuffle(len(faults), func(i, j int) { faults[i], faults[j] = faults[j], faults[i] })
	for _, f := range faults {
		if !t.Run(f.name, func(t *testing.T) { c.Run(t, briefDuration, []fault{f}) }) {
			return // the cluster may still be damaged
		}
	}
}

// TestReplicaFaultsKeepGuarantees tests faults of the API servers.
func TestReplicaFaultsKeepGuarantees(t *testing.T) {
	runFaults(t, topology{nats: 1, etcd: 1}, replicaFaults())
}

// TestNATSFaultsKeepGuarantees tests faults of a NATS cluster.
func TestNATSFaultsKeepGuarantees(t *testing.T) {
	runFaults(t, topology{nats: 3, etcd: 1}, natsFaults())
}

// TestEtcdFaultsKeepGuarantees tests faults of a single etcd.
func TestEtcdFaultsKeepGuarantees(t *testing.T) {
	runFaults(t, topology{nats: 1, etcd: 1}, etcdFaults())
}

// TestMemberFaultsKeepGuarantees tests faults of an etcd cluster.
func TestMemberFaultsKeepGuarantees(t *testing.T) {
	runFaults(t, topology{nats: 1, etcd: 3}, memberFaults())
}

// TestDiskFaultsKeepGuarantees tests faults of the disks under etcd.
func TestDiskFaultsKeepGuarantees(t *testing.T) {
	requireDisks(t)
	runFaults(t, topology{nats: 1, etcd: 3, failingDisks: true}, diskFaults())
}

// TestExpiredCertificatesKeepGuarantees tests the expiry of certificates in use.
func TestExpiredCertificatesKeepGuarantees(t *testing.T) {
	runFaults(t, topology{nats: 1, etcd: 1, mutualTLS: true}, certificateFaults())
}

// TestClockJumpsKeepGuarantees tests jumps of the API servers' wall clocks.
func TestClockJumpsKeepGuarantees(t *testing.T) {
	requireLongTests(t) // rebuilds all packages of the server
	runFaults(t, topology{nats: 1, etcd: 1, wrongClocks: true}, clockFaults())
}

// requireLongTests skips the test unless long tests are requested.
func requireLongTests(t *testing.T) {
	t.Helper()
	if os.Getenv(longEnv) != "long" {
		t.Skipf("%s is not long", longEnv)
	}
}

// requireDisks skips the test if no disks can be mounted.
func requireDisks(t *testing.T) {
	t.Helper()
	if err := tryDisk(t); err != nil {
		t.Skip(err)
	}
}

// tryDisk returns an error if no disks can be mounted.
func tryDisk(t *testing.T) error {
	_, err := harness.StartDisk(t)
	return err
}

// TestRandomFaultsKeepGuarantees runs random sequences of faults.
func TestRandomFaultsKeepGuarantees(t *testing.T) {
	requireLongTests(t)
	limit := 10 * time.Minute
	if s := os.Getenv(timeEnv); s != "" {
		var err error
		if limit, err = time.ParseDuration(s); err != nil {
			t.Fatalf("%s: %v", timeEnv, err)
		}
	}
	s := topology{nats: 3, etcd: 3}
	faults := slices.Concat(replicaFaults(), natsFaults(), etcdFaults(), memberFaults())
	if err := tryDisk(t); err != nil {
		t.Logf("no disk faults: %v", err)
	} else {
		s.failingDisks = true
		faults = append(faults, diskFaults()...)
	}
	cluster := StartCluster(t, s, randomSeed(t))
	heaps := cluster.heapSizes()
	anyTime := func(r *rand.Rand) time.Duration { return time.Duration(r.ExpFloat64() * float64(2*time.Second)) }
	for started := time.Now(); time.Since(started) < limit; {
		var steps [][]fault
		var name []string
		for range 1 + cluster.rand.IntN(4) {
			step := []fault{faults[cluster.rand.IntN(len(faults))]}
			for range cluster.rand.IntN(3) {
				step = append(step, linkFaults()[cluster.rand.IntN(len(linkFaults()))])
			}
			steps, name = append(steps, step), append(name, faultNames(step))
		}
		if !t.Run(strings.Join(name, ", then "), func(t *testing.T) { cluster.Run(t, anyTime, steps...) }) {
			return
		}
	}
	harness.Eventually(t, waitTimeout, "heaps to shrink", func() error {
		for i, now := range cluster.heapSizes() {
			if now > heaps[i]+heapTolerance {
				return fmt.Errorf("heap of replica %d: got %.0f MiB, had %.0f MiB before", i, now/(1<<20), heaps[i]/(1<<20))
			}
		}
		return nil
	})
	t.Logf("heaps in bytes: %.0f before, %.0f after", heaps, cluster.heapSizes())
}
