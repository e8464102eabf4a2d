package robustness

import (
	"flag"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/klog/v2"
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
func suite(t *testing.T, natsServers int, faults []fault) {
	t.Parallel()
	c := StartCluster(t, natsServers, seed(t))
	c.rand.Shuffle(len(faults), func(i, j int) { faults[i], faults[j] = faults[j], faults[i] })
	for _, f := range faults {
		if !t.Run(f.name, func(t *testing.T) { c.Run(t, briefly, []fault{f}) }) {
			return // what was damaged may not be repaired
		}
	}
}

func TestReplicas(t *testing.T) { suite(t, 1, replicaFaults()) }

func TestNATS(t *testing.T) { suite(t, 3, natsFaults()) }

func TestEtcd(t *testing.T) { suite(t, 1, etcdFaults()) }

// TestLong lets faults of all kinds follow each other at random.
func TestLong(t *testing.T) {
	if os.Getenv(formEnv) != "long" {
		t.Skipf("%s is not long", formEnv)
	}
	limit := 10 * time.Minute
	if s := os.Getenv(timeEnv); s != "" {
		var err error
		if limit, err = time.ParseDuration(s); err != nil {
			t.Fatalf("%s: %v", timeEnv, err)
		}
	}
	faults := slices.Concat(replicaFaults(), natsFaults(), etcdFaults())
	c := StartCluster(t, 3, seed(t))
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
}
