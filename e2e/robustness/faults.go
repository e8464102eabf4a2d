package robustness

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/e2e/harness"
	"binnacle/e2e/robustness/history"
)

// fault is a kind of failure. inject causes it and returns its repair. duration is its minimum
// duration.
type fault struct {
	name     string
	inject   func(*Cluster) (repair func())
	duration faultDuration
}

// faultDuration says how long a fault lasts at least.
type faultDuration int

const (
	// brief faults last for a random time.
	brief faultDuration = iota
	// untilTakeover faults last until another replica publishes.
	untilTakeover
	// untilGapDetected faults last until a replica detects that it misses changes from NATS.
	untilGapDetected
)

// stoppable is a process that a fault can kill or pause.
type stoppable interface {
	Kill()
	Pause()
	Resume()
	Start()
}

// killProcess kills a process and returns the repair.
func killProcess(process stoppable) func() {
	process.Kill()
	return process.Start
}

// pauseProcess pauses a process and returns the repair.
func pauseProcess(process stoppable) func() {
	process.Pause()
	return process.Resume
}

// terminate stops a replica gracefully and returns the repair.
func (c *Cluster) terminate(r *replica) func() {
	if err := r.Stop(); err != nil {
		c.t.Fatalf("stop a replica: %v", err)
	}
	return r.Start
}

// setTraffic changes the traffic of links. The repair randomly closes or keeps the connections that
// were held back.
func (c *Cluster) setTraffic(traffic harness.Traffic, links ...*harness.Proxy) func() {
	for _, l := range links {
		l.Set(traffic)
	}
	closes := c.rand.IntN(2) == 0
	return func() {
		for _, l := range links {
			if closes {
				l.Reset()
			}
			l.Set(harness.Pass)
		}
	}
}

// atPublisher returns a fault of the publisher.
func atPublisher(inject func(*Cluster, *replica) func()) func(*Cluster) func() {
	return func(c *Cluster) func() {
		p, _ := c.publisherAndOther()
		return inject(c, p)
	}
}

// atOtherReplica returns a fault of a random replica that does not publish.
func atOtherReplica(inject func(*Cluster, *replica) func()) func(*Cluster) func() {
	return func(c *Cluster) func() {
		_, other := c.publisherAndOther()
		return inject(c, other)
	}
}

// atOneNATS returns a fault of a random NATS server.
func atOneNATS(inject func(stoppable) func()) func(*Cluster) func() {
	return func(c *Cluster) func() { return inject(c.nats[c.rand.IntN(len(c.nats))]) }
}

// atAllNATS returns a fault of all NATS servers.
func atAllNATS(inject func(stoppable) func()) func(*Cluster) func() {
	return func(c *Cluster) func() {
		var repairs []func()
		for _, n := range c.nats {
			repairs = append(repairs, inject(n))
		}
		return func() {
			for _, repair := range repairs {
				repair()
			}
		}
	}
}

// atAnyReplica returns a fault of a random replica, for use beside other faults, when the publisher
// may be unknown.
func atAnyReplica(inject func(*Cluster, *replica) func()) func(*Cluster) func() {
	return func(c *Cluster) func() { return inject(c, c.replicas[c.rand.IntN(len(c.replicas))]) }
}

func killReplica(_ *Cluster, r *replica) func()  { return killProcess(r) }
func pauseReplica(_ *Cluster, r *replica) func() { return pauseProcess(r) }

// disturbNATSLinks returns a fault of the links from a replica to NATS.
func disturbNATSLinks(traffic harness.Traffic) func(*Cluster, *replica) func() {
	return func(c *Cluster, r *replica) func() { return c.setTraffic(traffic, r.toNATS...) }
}

// disturbEtcdLinks returns a fault of the links from a replica to etcd.
func disturbEtcdLinks(traffic harness.Traffic) func(*Cluster, *replica) func() {
	return func(c *Cluster, r *replica) func() { return c.setTraffic(traffic, r.toEtcd...) }
}

// replicaFaults are faults of the replicas.
func replicaFaults() []fault {
	return []fault{
		{"none", func(*Cluster) func() { return func() {} }, brief},
		{"publisher killed until takeover", atPublisher(killReplica), untilTakeover},
		{"publisher killed", atPublisher(killReplica), brief},
		{"publisher paused until takeover", atPublisher(pauseReplica), untilTakeover},
		{"publisher paused", atPublisher(pauseReplica), brief},
		{"publisher stopped", atPublisher((*Cluster).terminate), brief},
		{"replica killed", atOtherReplica(killReplica), brief},
		{"replica paused", atOtherReplica(pauseReplica), brief},
		{"NATS killed", atAllNATS(killProcess), untilGapDetected},
		{"NATS paused", atAllNATS(pauseProcess), untilGapDetected},
	}
}

// natsFaults are faults of NATS and the links to it.
func natsFaults() []fault {
	return []fault{
		{"a NATS server killed", atOneNATS(killProcess), brief},
		{"a NATS server paused", atOneNATS(pauseProcess), brief},
		{"all NATS servers killed", atAllNATS(killProcess), untilGapDetected},
		{"publisher cut from NATS", atPublisher(disturbNATSLinks(harness.Cut)), brief},
		{"publisher cut from NATS until takeover", atPublisher(disturbNATSLinks(harness.Cut)), untilTakeover},
		{"publisher's link to NATS stalls", atPublisher(disturbNATSLinks(harness.Stall)), untilGapDetected},
		{"replica cut from NATS", atOtherReplica(disturbNATSLinks(harness.Cut)), brief},
		{"replica's link to NATS stalls", atOtherReplica(disturbNATSLinks(harness.Stall)), untilGapDetected},
		{"replica receives nothing from NATS", atOtherReplica(disturbNATSLinks(harness.StallResponses)), untilGapDetected},
		{"objects larger than a message of NATS", writeLargeObject, brief},
		{"a NATS server partitioned from the others", partitionNATS, brief},
		{"an old publisher continues", replayOldPublisher, brief},
		{"corrupt messages and other format versions", publishInvalidMessages, untilGapDetected},
	}
}

// writeLargeObject writes an object that exceeds the size of a NATS message. It is in a namespace
// that only the watches of all namespaces see, because reading it is slow.
func writeLargeObject(cluster *Cluster) func() {
	cluster.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitTimeout)
	defer cancel()
	maps := cluster.replicas[cluster.rand.IntN(len(cluster.replicas))].admin.CoreV1().ConfigMaps(metav1.NamespaceDefault)
	large := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Name:        "large",
			Annotations: map[string]string{history.MarkAnnotation: fmt.Sprint("large-", cluster.scenarioCount)},
		},
		BinaryData: map[string][]byte{"data": make([]byte, largeSize)},
	}
	if _, err := maps.Create(ctx, large, metav1.CreateOptions{}); err != nil {
		cluster.t.Fatalf("create an object of %d bytes: %v", largeSize, err)
	}
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), waitTimeout)
		defer cancel()
		if err := maps.Delete(ctx, large.Name, metav1.DeleteOptions{}); err != nil {
			cluster.t.Fatalf("delete the large object: %v", err)
		}
	}
}

// largeSize is the maximum size of an object's data. With its metadata the object exceeds the
// default message size of NATS.
const largeSize = 1 << 20

// etcdFaults are faults of etcd and the links to it.
func etcdFaults() []fault {
	return []fault{
		{"etcd killed", killAllEtcd, brief},
		{"etcd paused", pauseAllEtcd, brief},
		{"publisher cut from etcd", atPublisher(disturbEtcdLinks(harness.Cut)), brief},
		{"publisher cut from etcd until takeover", atPublisher(disturbEtcdLinks(harness.Cut)), untilTakeover},
		{"replica cut from etcd", atOtherReplica(disturbEtcdLinks(harness.Cut)), brief},
		{"replica's link to etcd stalls", atOtherReplica(disturbEtcdLinks(harness.Stall)), brief},
		{"etcd's responses to a replica stall", atOtherReplica(disturbEtcdLinks(harness.StallResponses)), brief},
		{"etcd's responses to the publisher stall", atPublisher(disturbEtcdLinks(harness.StallResponses)), brief},
		{"history compacted", func(c *Cluster) func() { c.compactHistory(); return func() {} }, brief},
		{"history compacted while a replica is disconnected", compactWhileDisconnected, brief},
		{"history compacted when etcd restarts", compactAfterRestart, brief},
		{"packets of every link lost and delayed",
			func(c *Cluster) func() { return c.setTraffic(harness.Lose, c.allLinks()...) }, brief},
	}
}

// linkFaults are faults that can occur together with any other fault.
func linkFaults() []fault {
	return []fault{
		{"a replica cut from NATS", atAnyReplica(disturbNATSLinks(harness.Cut)), brief},
		{"a replica's link to NATS stalls", atAnyReplica(disturbNATSLinks(harness.Stall)), brief},
		{"a replica cut from etcd", atAnyReplica(disturbEtcdLinks(harness.Cut)), brief},
		{"etcd's responses to a replica stall", atAnyReplica(disturbEtcdLinks(harness.StallResponses)), brief},
	}
}

// killAllEtcd kills all members. The repair starts them together, because none becomes healthy
// alone.
func killAllEtcd(cluster *Cluster) func() {
	for _, m := range cluster.etcd {
		m.Kill()
	}
	return func() { harness.StartTogether(cluster.etcdMembers()) }
}

// pauseAllEtcd pauses all members of etcd.
func pauseAllEtcd(cluster *Cluster) func() {
	for _, m := range cluster.etcd {
		m.Pause()
	}
	return func() {
		for _, m := range cluster.etcd {
			m.Resume()
		}
	}
}

// compactWhileDisconnected disconnects a replica and compacts the history before it reconnects.
func compactWhileDisconnected(cluster *Cluster) func() {
	_, other := cluster.publisherAndOther()
	repair := cluster.setTraffic(harness.Cut, slices.Concat(other.toNATS, other.toEtcd)...)
	return func() {
		cluster.compactHistory()
		repair()
	}
}

// compactAfterRestart restarts etcd and compacts the history before the replicas may have
// reconnected.
func compactAfterRestart(cluster *Cluster) func() {
	restart := killAllEtcd(cluster)
	return func() {
		restart()
		cluster.compactHistory()
	}
}
