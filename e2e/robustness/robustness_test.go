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
	formEnv = "BINNACLE_ROBUSTNESS"
	timeEnv = "BINNACLE_ROBUSTNESS_TIME"
)

// suites is the number of clusters that run side by side.
const suites = 3

func TestMain(m *testing.M) {
	// client-go tells of every connection that is lost.
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	flag.Parse()
	// The suites mostly wait, each for processes of its own.
	if err := flag.Set("test.parallel", strconv.Itoa(suites)); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// spare is what a heap may have grown by besides: caches fill themselves, and every
// round leaves objects.
const spare = 96 << 20

// seed is the one that is asked for, or a new one.
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

// briefly is how long brief faults last in the short tests.
func briefly(r *rand.Rand) time.Duration {
	return 100*time.Millisecond + time.Duration(r.Int64N(int64(900*time.Millisecond)))
}

// suite runs a scenario for each fault on one cluster, in some order.
func suite(t *testing.T, s shape, faults []fault) {
	t.Parallel()
	c := StartCluster(t, s, seed(t))
	c.rand.Shuffle(len(faults), func(i, j int) { faults[i], faults[j] = faults[j], faults[i] })
	for _, f := range faults {
		if !t.Run(f.name, func(t *testing.T) { c.Run(t, briefly, []fault{f}) }) {
			return // what was damaged may not be repaired
		}
	}
}

func TestReplicas(t *testing.T) { suite(t, shape{nats: 1, etcd: 1}, replicaFaults()) }

func TestNATS(t *testing.T) { suite(t, shape{nats: 3, etcd: 1}, natsFaults()) }

func TestEtcd(t *testing.T) { suite(t, shape{nats: 1, etcd: 1}, etcdFaults()) }

// TestMembers breaks a cluster of etcd servers.
func TestMembers(t *testing.T) { suite(t, shape{nats: 1, etcd: 3}, memberFaults()) }

// TestDisks lets the disks under etcd fail.
func TestDisks(t *testing.T) {
	needDisks(t)
	suite(t, shape{nats: 1, etcd: 3, disks: true}, diskFaults())
}

// TestCertificates lets certificates end mid-run.
func TestCertificates(t *testing.T) {
	suite(t, shape{nats: 1, etcd: 1, secure: true}, certificateFaults())
}

// TestClocks lets the wall clocks of API servers jump.
func TestClocks(t *testing.T) {
	needLong(t) // all of a server is compiled for it
	suite(t, shape{nats: 1, etcd: 1, clocks: true}, clockFaults())
}

func needLong(t *testing.T) {
	t.Helper()
	if os.Getenv(formEnv) != "long" {
		t.Skipf("%s is not long", formEnv)
	}
}

// needDisks skips where no disks can be mounted.
func needDisks(t *testing.T) {
	t.Helper()
	if err := disks(t); err != nil {
		t.Skip(err)
	}
}

func disks(t *testing.T) error {
	_, err := harness.StartDisk(t)
	return err
}

// TestLong lets faults of all kinds follow each other at random.
func TestLong(t *testing.T) {
	needLong(t)
	limit := 10 * time.Minute
	if s := os.Getenv(timeEnv); s != "" {
		var err error
		if limit, err = time.ParseDuration(s); err != nil {
			t.Fatalf("%s: %v", timeEnv, err)
		}
	}
	s := shape{nats: 3, etcd: 3}
	faults := slices.Concat(replicaFaults(), natsFaults(), etcdFaults(), memberFaults())
	if err := disks(t); err != nil {
		t.Logf("the disks are well all the time: %v", err)
	} else {
		s.disks = true
		faults = append(faults, diskFaults()...)
	}
	c := StartCluster(t, s, seed(t))
	heaps := c.heaps()
	anyTime := func(r *rand.Rand) time.Duration { return time.Duration(r.ExpFloat64() * float64(2*time.Second)) }
	for begun := time.Now(); time.Since(begun) < limit; {
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
	harness.Eventually(t, patience, "heaps as they were", func() error {
		for i, now := range c.heaps() {
			if now > heaps[i]+spare {
				return fmt.Errorf("replica %d has %.0f MiB, %.0f before", i, now/(1<<20), heaps[i]/(1<<20))
			}
		}
		return nil
	})
	t.Logf("heaps in bytes: %.0f before, %.0f after", heaps, c.heaps())
}
