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

// suites is the number of clusters that run in parallel.
const suites = 3

func TestMain(m *testing.M) {
	// client-go logs every lost connection.
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	flag.Parse()
	// The suites mostly wait for their own processes.
	if err := flag.Set("test.parallel", strconv.Itoa(suites)); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// heapTolerance is the allowed heap growth. Caches fill, and every round leaves objects behind.
const heapTolerance = 96 << 20

// seed returns the seed from the environment or a new one.
func seed(t *testing.T) uint64 {
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

// briefly returns how long a brief fault lasts in the short tests.
func briefly(r *rand.Rand) time.Duration {
	return 100*time.Millisecond + time.Duration(r.Int64N(int64(900*time.Millisecond)))
}

// suite runs one scenario per fault on one cluster in random order.
func suite(t *testing.T, s topology, faults []fault) {
	t.Parallel()
	c := StartCluster(t, s, seed(t))
	c.rand.Shuffle(len(faults), func(i, j int) { faults[i], faults[j] = faults[j], faults[i] })
	for _, f := range faults {
		if !t.Run(f.name, func(t *testing.T) { c.Run(t, briefly, []fault{f}) }) {
			return // the cluster may still be damaged
		}
	}
}

// TestReplicas tests faults of the API servers.
func TestReplicas(t *testing.T) { suite(t, topology{nats: 1, etcd: 1}, replicaFaults()) }

// TestNATS tests faults of a NATS cluster.
func TestNATS(t *testing.T) { suite(t, topology{nats: 3, etcd: 1}, natsFaults()) }

// TestEtcd tests faults of a single etcd.
func TestEtcd(t *testing.T) { suite(t, topology{nats: 1, etcd: 1}, etcdFaults()) }

// TestMembers tests faults of an etcd cluster.
func TestMembers(t *testing.T) { suite(t, topology{nats: 1, etcd: 3}, memberFaults()) }

// TestDisks tests faults of the disks under etcd.
func TestDisks(t *testing.T) {
	needDisks(t)
	suite(t, topology{nats: 1, etcd: 3, disks: true}, diskFaults())
}

// TestCertificates tests the expiry of certificates in use.
func TestCertificates(t *testing.T) {
	suite(t, topology{nats: 1, etcd: 1, secure: true}, certificateFaults())
}

// TestClocks tests jumps of the API servers' wall clocks.
func TestClocks(t *testing.T) {
	needLong(t) // rebuilds all packages of the server
	suite(t, topology{nats: 1, etcd: 1, clocks: true}, clockFaults())
}

// needLong skips the test unless long tests are requested.
func needLong(t *testing.T) {
	t.Helper()
	if os.Getenv(longEnv) != "long" {
		t.Skipf("%s is not long", longEnv)
	}
}

// needDisks skips the test if no disks can be mounted.
func needDisks(t *testing.T) {
	t.Helper()
	if err := disks(t); err != nil {
		t.Skip(err)
	}
}

// disks returns an error if no disks can be mounted.
func disks(t *testing.T) error {
	_, err := harness.StartDisk(t)
	return err
}

// TestLong runs random sequences of faults.
func TestLong(t *testing.T) {
	needLong(t)
	limit := 10 * time.Minute
	if s := os.Getenv(timeEnv); s != "" {
		var err error
		if limit, err = time.ParseDuration(s); err != nil {
			t.Fatalf("%s: %v", timeEnv, err)
		}
	}
	s := topology{nats: 3, etcd: 3}
	faults := slices.Concat(replicaFaults(), natsFaults(), etcdFaults(), memberFaults())
	if err := disks(t); err != nil {
		t.Logf("no disk faults: %v", err)
	} else {
		s.disks = true
		faults = append(faults, diskFaults()...)
	}
	c := StartCluster(t, s, seed(t))
	heaps := c.heapSizes()
	anyTime := func(r *rand.Rand) time.Duration { return time.Duration(r.ExpFloat64() * float64(2*time.Second)) }
	for started := time.Now(); time.Since(started) < limit; {
		var steps [][]fault
		var name []string
		for range 1 + c.rand.IntN(4) {
			step := []fault{faults[c.rand.IntN(len(faults))]}
			for range c.rand.IntN(3) {
				step = append(step, linkFaults()[c.rand.IntN(len(linkFaults()))])
			}
			steps, name = append(steps, step), append(name, names(step))
		}
		if !t.Run(strings.Join(name, ", then "), func(t *testing.T) { c.Run(t, anyTime, steps...) }) {
			return
		}
	}
	harness.Eventually(t, waitTimeout, "heaps to shrink", func() error {
		for i, now := range c.heapSizes() {
			if now > heaps[i]+heapTolerance {
				return fmt.Errorf("heap of replica %d: got %.0f MiB, had %.0f MiB before", i, now/(1<<20), heaps[i]/(1<<20))
			}
		}
		return nil
	})
	t.Logf("heaps in bytes: %.0f before, %.0f after", heaps, c.heapSizes())
}
