package robustness

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"

	"binnacle/e2e/harness"
	"binnacle/e2e/robustness/traffic"
)

const replicaCount = 3

// Cluster is an etcd, NATS servers and replicas of the API server, each of
// which has links of its own to etcd and NATS.
type Cluster struct {
	t           testing.TB
	clusterSeed uint64
	rand        *rand.Rand
	etcd        *harness.Etcd
	client      *clientv3.Client
	nats        []*harness.NATS
	replicas    []*replica
	recorder    *traffic.Recorder
	rounds      int
}

// replica is an API server and its links.
type replica struct {
	*harness.Server
	admin   *kubernetes.Clientset
	clients traffic.Replica
	toEtcd  *harness.Proxy
	toNATS  []*harness.Proxy
}

// StartCluster starts everything, with some number of NATS servers.
func StartCluster(t testing.TB, natsServers int, seed uint64) *Cluster {
	t.Helper()
	harness.Binary(t, harness.APIServer) // may take a while, in which nothing should run yet
	c := &Cluster{t: t, clusterSeed: seed, rand: rand.New(rand.NewPCG(seed, 0))}
	c.etcd, c.nats = harness.StartEtcd(t), harness.StartNATS(t, natsServers)
	c.client = c.etcd.Client()
	c.recorder = traffic.NewRecorder(c.client)
	ctx, cancel := context.WithCancel(context.Background())
	var recording sync.WaitGroup
	recording.Go(func() { c.recorder.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		recording.Wait()
	})
	for range replicaCount {
		c.replicas = append(c.replicas, c.startReplica())
	}
	harness.Eventually(t, patience, "a publisher", func() error { _, err := c.publisher(); return err })
	return c
}

func (c *Cluster) startReplica() *replica {
	c.t.Helper()
	r := &replica{toEtcd: harness.StartProxy(c.t, strings.TrimPrefix(c.etcd.Endpoint, "http://"))}
	var servers []string
	for _, n := range c.nats {
		p := harness.StartProxy(c.t, n.Addr)
		r.toNATS = append(r.toNATS, p)
		servers = append(servers, "nats://"+p.Addr)
	}
	r.Server = harness.StartServer(c.t, harness.WithFlags(
		"--etcd-servers=http://"+r.toEtcd.Addr, "--nats-servers="+strings.Join(servers, ","), "--cluster-id=robustness",
		// Compaction is one of the faults.
		"--etcd-compaction-interval=0", "--feature-gates=WatchList=true",
	))
	r.admin = r.Client()
	m, err := metadata.NewForConfig(r.Config())
	if err != nil {
		c.t.Fatal(err)
	}
	r.clients = traffic.Replica{JSON: r.admin, Protobuf: harness.ClientFor(c.t, harness.Protobuf(r.Config())), Metadata: m}
	return r
}

var errNoPublisher = errors.New("no replica publishes")

// publisher is the replica that says that it publishes the changes.
func (c *Cluster) publisher() (*replica, error) {
	for _, r := range c.replicas {
		if publishes, err := r.publishes(); err == nil && publishes {
			return r, nil
		}
	}
	return nil, errNoPublisher
}

// publishes tells whether the replica says that it publishes the changes.
func (r *replica) publishes() (bool, error) {
	m, err := r.metrics()
	return m["binnacle_fanout_publisher"] == 1, err
}

// gaps is how often replicas noticed that the stream of changes has a gap, as
// far as they can be asked, and how many of them read from the store now.
func (c *Cluster) gaps() (n float64, away int) {
	for _, r := range c.replicas {
		m, _ := r.metrics() // one that does not answer has noticed nothing yet
		for name, v := range m {
			if strings.HasPrefix(name, "binnacle_fanout_gaps_total{") {
				n += v
			}
		}
		if m[`binnacle_fanout_source{source="store"}`] == 1 {
			away++
		}
	}
	return n, away
}

// metrics asks the replica for its metrics, by name and labels.
func (r *replica) metrics() (map[string]float64, error) {
	if !r.Running() {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	text, err := r.admin.RESTClient().Get().AbsPath("/metrics").MaxRetries(0).DoRaw(ctx)
	if err != nil {
		return nil, err
	}
	m := map[string]float64{}
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok && name != "#" {
			if m[name], err = strconv.ParseFloat(value, 64); err != nil {
				return nil, fmt.Errorf("metric %s: %w", name, err)
			}
		}
	}
	return m, nil
}

// roles picks the publisher and one of the others.
func (c *Cluster) roles() (publisher, other *replica) {
	c.t.Helper()
	harness.Eventually(c.t, patience, "a publisher", func() (err error) {
		publisher, err = c.publisher()
		return err
	})
	for _, i := range c.rand.Perm(len(c.replicas)) {
		if other = c.replicas[i]; other != publisher {
			break
		}
	}
	return publisher, other
}

// compact forgets all history that the truth has been told of.
func (c *Cluster) compact() {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if _, err := c.client.Compact(ctx, c.recorder.Revision()); err != nil && !errors.Is(err, rpctypes.ErrCompacted) {
		c.t.Fatalf("compact: %v", err)
	}
}

// saveLogs writes the logs of all processes into a folder.
func (c *Cluster) saveLogs(dir string) error {
	logs := map[string]string{"etcd.log": c.etcd.Log()}
	for i, n := range c.nats {
		logs[fmt.Sprintf("nats-%d.log", i)] = n.Log()
	}
	for i, r := range c.replicas {
		logs[fmt.Sprintf("apiserver-%d.log", i)] = r.Log()
	}
	var errs []error
	for name, log := range logs {
		errs = append(errs, os.WriteFile(filepath.Join(dir, name), []byte(log), 0o644))
	}
	return errors.Join(errs...)
}
