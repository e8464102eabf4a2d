package robustness

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
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
	"k8s.io/client-go/rest"

	"binnacle/e2e/harness"
	"binnacle/e2e/robustness/traffic"
)

// replicaCount is the number of replicas of a cluster.
const replicaCount = 3

// clusterID is the value of --cluster-id.
const clusterID = "robustness"

// Cluster consists of etcd servers, NATS servers and replicas of the API server. Each replica has
// its own links to etcd and NATS.
type Cluster struct {
	t             testing.TB
	clusterSeed   uint64
	rand          *rand.Rand
	topology      topology
	etcd          []*member
	client        *clientv3.Client
	nats          []*harness.NATS
	replicas      []*replica
	recorder      *traffic.Recorder
	certificates  *certificates // nil without TLS
	forger        *forger
	scenarioCount int
}

// topology selects the parts of a cluster and the faults that they support.
type topology struct {
	nats, etcd   int  // number of servers
	failingDisks bool // etcd's disks can fail
	mutualTLS    bool // etcd, NATS and the replicas use mutual TLS
	wrongClocks  bool // the replicas' clocks can be wrong
}

// member is an etcd server and its disk, which is used if disks can fail.
type member struct {
	*harness.Etcd
	disk *harness.Disk
}

// replica is an API server and its links.
type replica struct {
	*harness.Server
	admin       *kubernetes.Clientset
	anonymous   *http.Client
	clock       *clock // nil if the clock cannot be wrong
	clients     traffic.Replica
	toEtcd      []*harness.Proxy
	toNATS      []*harness.Proxy
	clientPairs clientPairs
}

// StartCluster starts all servers.
func StartCluster(t testing.TB, shape topology, seed uint64) *Cluster {
	t.Helper()
	// The binaries are built before anything runs, because that may take minutes.
	former := formerAPIServer(t)
	harness.Binary(t, harness.APIServer)
	cluster := &Cluster{t: t, clusterSeed: seed, topology: shape, rand: rand.New(rand.NewPCG(seed, 0))}
	if shape.mutualTLS {
		cluster.startServersWithTLS()
	} else {
		cluster.startEtcdMembers()
		cluster.nats = harness.StartNATS(t, shape.nats)
		cluster.forger = cluster.startForger()
	}
	cluster.client = harness.EtcdClient(t, cluster.etcdMembers())
	cluster.recorder = traffic.NewRecorder(cluster.client)
	ctx, cancel := context.WithCancel(context.Background())
	var recording sync.WaitGroup
	recording.Go(func() { cluster.recorder.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		recording.Wait()
	})
	for i := range replicaCount {
		var options []harness.Option
		if former != "" && i == 0 {
			options = append(options, harness.WithBinary(former))
		}
		cluster.replicas = append(cluster.replicas, cluster.startReplica(options...))
	}
	harness.Eventually(t, waitTimeout, "a publisher", func() error { _, err := cluster.publisher(); return err })
	return cluster
}

// startEtcdMembers starts the members of etcd, each on its own disk if disks can fail.
func (c *Cluster) startEtcdMembers() {
	c.t.Helper()
	var folders []string
	var disks []*harness.Disk
	for range c.topology.etcd {
		disk := &harness.Disk{}
		if c.topology.failingDisks {
			var err error
			if disk, err = harness.StartDisk(c.t); err != nil {
				c.t.Fatal(err)
			}
			folders = append(folders, filepath.Join(disk.Dir, "etcd"))
		}
		disks = append(disks, disk)
	}
	for i, e := range harness.StartEtcdCluster(c.t, c.topology.etcd, folders...) {
		c.etcd = append(c.etcd, &member{e, disks[i]})
	}
}

// etcdMembers returns the servers of etcd.
func (c *Cluster) etcdMembers() (out []*harness.Etcd) {
	for _, m := range c.etcd {
		out = append(out, m.Etcd)
	}
	return out
}

// hostPort returns the host and port of an endpoint.
func hostPort(endpoint string) string {
	_, address, _ := strings.Cut(endpoint, "://")
	return address
}

// startReplica starts a replica whose connections to etcd and NATS can be cut.
func (c *Cluster) startReplica(options ...harness.Option) *replica {
	c.t.Helper()
	started := &replica{}
	scheme, broker := "http://", "nats://"
	if c.certificates != nil {
		scheme, broker = "https://", "tls://"
		options = append(options, c.withCertificates(started))
	}
	if c.topology.wrongClocks {
		started.clock = &clock{Clock: harness.NewClock(c.t)}
		options = append(options, harness.WithClock(started.clock.Clock))
	}
	var members, servers []string
	for _, m := range c.etcd {
		p := harness.StartProxy(c.t, hostPort(m.Endpoint))
		started.toEtcd = append(started.toEtcd, p)
		members = append(members, scheme+p.Addr)
	}
	for _, n := range c.nats {
		p := harness.StartProxy(c.t, n.Addr)
		started.toNATS = append(started.toNATS, p)
		servers = append(servers, broker+p.Addr)
	}
	started.Server = harness.StartServer(c.t, append(options, harness.WithFlags(
		"--etcd-servers="+strings.Join(members, ","), "--nats-servers="+strings.Join(servers, ","), "--cluster-id="+clusterID,
		// Compaction is one of the faults.
		"--etcd-compaction-interval=0", "--feature-gates=WatchList=true",
	))...)
	started.admin = started.Client()
	var err error
	if started.anonymous, err = rest.HTTPClientFor(rest.AnonymousClientConfig(started.Config())); err != nil {
		c.t.Fatal(err)
	}
	started.anonymous.Timeout = requestTimeout
	m, err := metadata.NewForConfig(started.Config())
	if err != nil {
		c.t.Fatal(err)
	}
	started.clients = traffic.Replica{JSON: started.admin, Protobuf: harness.ClientFor(c.t, harness.Protobuf(started.Config())), Metadata: m}
	return started
}

var errNoPublisher = errors.New("no replica publishes")

// allLinks returns all links that a fault can affect: from the replicas to etcd and NATS, and
// between the servers of NATS.
func (c *Cluster) allLinks() (out []*harness.Proxy) {
	for _, r := range c.replicas {
		out = append(append(out, r.toEtcd...), r.toNATS...)
	}
	seen := map[*harness.Proxy]bool{}
	for _, n := range c.nats {
		for _, p := range n.Routes() {
			if !seen[p] {
				seen[p] = true
				out = append(out, p)
			}
		}
	}
	return out
}

// publisher returns the replica whose metrics say that it publishes changes.
func (c *Cluster) publisher() (*replica, error) {
	for _, r := range c.replicas {
		if publishes, err := r.publishes(); err == nil && publishes {
			return r, nil
		}
	}
	return nil, errNoPublisher
}

// publishes reports whether the replica publishes changes, according to its metrics.
func (r *replica) publishes() (bool, error) {
	m, err := r.metrics()
	return m["binnacle_fanout_publisher"] == 1, err
}

// countGaps returns the number of gaps that the reachable replicas detected in the stream of
// changes, and the number of replicas that read from the store now.
func (c *Cluster) countGaps() (n float64, fallback int) {
	for _, r := range c.replicas {
		gaps, fromStore := r.countGaps()
		n += gaps
		if fromStore {
			fallback++
		}
	}
	return n, fallback
}

// countGaps returns the number of gaps that a replica detected, and whether it reads from the store
// now. An unreachable replica counts as having detected none.
func (r *replica) countGaps() (n float64, fallback bool) {
	m, _ := r.metrics()
	for name, v := range m {
		if strings.HasPrefix(name, "binnacle_fanout_gaps_total{") {
			n += v
		}
	}
	return n, m[`binnacle_fanout_source{source="store"}`] == 1
}

// metrics returns the replica's metrics by name and labels.
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
		line = strings.TrimSpace(line)
		// Values of labels may contain spaces.
		if i := strings.LastIndexByte(line, ' '); i > 0 && !strings.HasPrefix(line, "#") {
			name := line[:i]
			if m[name], err = strconv.ParseFloat(line[i+1:], 64); err != nil {
				return nil, fmt.Errorf("metric %s: %w", name, err)
			}
		}
	}
	return m, nil
}

// heapSizes returns the heap sizes of the replicas after a garbage collection.
func (c *Cluster) heapSizes() (out []float64) {
	c.t.Helper()
	for i, r := range c.replicas {
		ctx, cancel := context.WithTimeout(context.Background(), waitTimeout)
		err := r.admin.RESTClient().Get().AbsPath("/debug/pprof/heap").Param("gc", "1").Do(ctx).Error()
		cancel()
		m, metricsErr := r.metrics()
		if err := errors.Join(err, metricsErr); err != nil {
			c.t.Fatalf("heap of replica %d: %v", i, err)
		}
		out = append(out, m["go_memstats_heap_alloc_bytes"])
	}
	return out
}

// publisherAndOther returns the publisher and a random other replica.
func (c *Cluster) publisherAndOther() (publisher, other *replica) {
	c.t.Helper()
	harness.Eventually(c.t, waitTimeout, "a publisher", func() (err error) {
		publisher, err = c.publisher()
		return err
	})
	for _, i := range c.rand.Perm(len(c.replicas)) {
		other = c.replicas[i]
		if other != publisher {
			break
		}
	}
	return publisher, other
}

// compactHistory compacts etcd up to the last recorded revision.
func (c *Cluster) compactHistory() {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitTimeout)
	defer cancel()
	if _, err := c.client.Compact(ctx, c.recorder.Revision()); err != nil && !errors.Is(err, rpctypes.ErrCompacted) {
		c.t.Fatalf("compact: %v", err)
	}
}

// saveLogs writes the logs of all processes into a folder.
func (c *Cluster) saveLogs(dir string) error {
	logs := map[string]string{}
	for i, m := range c.etcd {
		logs[fmt.Sprintf("etcd-%d.log", i)] = m.Log()
	}
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
