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

// fault is a kind of failure. inject causes it and returns its repair. duration is how long the fault
// lasts at least.
type fault struct {
	name     string
	inject   func(*Cluster) (repair func())
	duration faultDuration
}

// faultDuration says how long a fault lasts.
type faultDuration int

// A fault is brief, lasts until another replica publishes, or lasts until a replica detects that it
// misses changes from NATS.
const (
	brief faultDuration = iota
	untilTakeover
	untilNoticed
)

// process is a process that a fault can kill or pause.
type process interface {
	Kill()
	Pause()
	Resume()
	Start()
}

func kill(p process) func() {
	p.Kill()
	return p.Start
}

func freeze(p process) func() {
	p.Pause()
	return p.Resume
}

func (c *Cluster) terminate(r *replica) func() {
	if err := r.Stop(); err != nil {
		c.t.Fatalf("stop a replica: %v", err)
	}
	return r.Start
}

// setTraffic changes the traffic of links. The repair randomly closes or keeps the connections that
// were held back.
func (c *Cluster) setTraffic(how harness.Traffic, links ...*harness.Proxy) func() {
	for _, l := range links {
		l.Set(how)
	}
	die := c.rand.IntN(2) == 0
	return func() {
		for _, l := range links {
			if die {
				l.Reset()
			}
			l.Set(harness.Pass)
		}
	}
}

func onPublisher(do func(*Cluster, *replica) func()) func(*Cluster) func() {
	return func(c *Cluster) func() {
		p, _ := c.roles()
		return do(c, p)
	}
}

func onOther(do func(*Cluster, *replica) func()) func(*Cluster) func() {
	return func(c *Cluster) func() {
		_, other := c.roles()
		return do(c, other)
	}
}

func onNATS(do func(process) func()) func(*Cluster) func() {
	return func(c *Cluster) func() { return do(c.nats[c.rand.IntN(len(c.nats))]) }
}

func allNATS(do func(process) func()) func(*Cluster) func() {
	return func(c *Cluster) func() {
		var repairs []func()
		for _, n := range c.nats {
			repairs = append(repairs, do(n))
		}
		return func() {
			for _, repair := range repairs {
				repair()
			}
		}
	}
}

// onSome picks any replica. It is for faults beside other faults, when the publisher may be
// unknown.
func onSome(do func(*Cluster, *replica) func()) func(*Cluster) func() {
	return func(c *Cluster) func() { return do(c, c.replicas[c.rand.IntN(len(c.replicas))]) }
}

func killReplica(_ *Cluster, r *replica) func()   { return kill(r) }
func freezeReplica(_ *Cluster, r *replica) func() { return freeze(r) }

func fromNATS(how harness.Traffic) func(*Cluster, *replica) func() {
	return func(c *Cluster, r *replica) func() { return c.setTraffic(how, r.toNATS...) }
}

func fromEtcd(how harness.Traffic) func(*Cluster, *replica) func() {
	return func(c *Cluster, r *replica) func() { return c.setTraffic(how, r.toEtcd...) }
}

// replicaFaults are faults of the replicas.
func replicaFaults() []fault {
	return []fault{
		{"none", func(*Cluster) func() { return func() {} }, brief},
		{"publisher killed until takeover", onPublisher(killReplica), untilTakeover},
		{"publisher killed", onPublisher(killReplica), brief},
		{"publisher paused until takeover", onPublisher(freezeReplica), untilTakeover},
		{"publisher paused", onPublisher(freezeReplica), brief},
		{"publisher stopped", onPublisher((*Cluster).terminate), brief},
		{"replica killed", onOther(killReplica), brief},
		{"replica paused", onOther(freezeReplica), brief},
		{"NATS killed", allNATS(kill), untilNoticed},
		{"NATS paused", allNATS(freeze), untilNoticed},
	}
}

// natsFaults are faults of NATS and the links to it.
func natsFaults() []fault {
	return []fault{
		{"a NATS server killed", onNATS(kill), brief},
		{"a NATS server paused", onNATS(freeze), brief},
		{"all NATS servers killed", allNATS(kill), untilNoticed},
		{"publisher cut from NATS", onPublisher(fromNATS(harness.Cut)), brief},
		{"publisher cut from NATS until takeover", onPublisher(fromNATS(harness.Cut)), untilTakeover},
		{"publisher's link to NATS stalls", onPublisher(fromNATS(harness.Stall)), untilNoticed},
		{"replica cut from NATS", onOther(fromNATS(harness.Cut)), brief},
		{"replica's link to NATS stalls", onOther(fromNATS(harness.Stall)), untilNoticed},
		{"replica receives nothing from NATS", onOther(fromNATS(harness.StallResponses)), untilNoticed},
		{"objects larger than a message of NATS", inParts, brief},
		{"a NATS server partitioned from the others", splitNATS, brief},
		{"an old publisher continues", oldPublisher, brief},
		{"corrupt messages and other format versions", invalidMessages, untilNoticed},
	}
}

// inParts writes an object that exceeds the size of a NATS message. It is in a namespace that only
// the watches of all namespaces see, because reading it is slow.
func inParts(c *Cluster) func() {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitTimeout)
	defer cancel()
	maps := c.replicas[c.rand.IntN(len(c.replicas))].admin.CoreV1().ConfigMaps(metav1.NamespaceDefault)
	large := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "large", Annotations: map[string]string{history.MarkAnnotation: fmt.Sprint("large-", c.rounds)}},
		BinaryData: map[string][]byte{"data": make([]byte, largeSize)},
	}
	if _, err := maps.Create(ctx, large, metav1.CreateOptions{}); err != nil {
		c.t.Fatalf("create an object of %d bytes: %v", largeSize, err)
	}
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), waitTimeout)
		defer cancel()
		if err := maps.Delete(ctx, large.Name, metav1.DeleteOptions{}); err != nil {
			c.t.Fatalf("delete the large object: %v", err)
		}
	}
}

// largeSize is the maximum size of an object's data. With its metadata the object exceeds the
// default message size of NATS.
const largeSize = 1 << 20

// etcdFaults are faults of etcd and the links to it.
func etcdFaults() []fault {
	return []fault{
		{"etcd killed", killEtcd, brief},
		{"etcd paused", freezeEtcd, brief},
		{"publisher cut from etcd", onPublisher(fromEtcd(harness.Cut)), brief},
		{"publisher cut from etcd until takeover", onPublisher(fromEtcd(harness.Cut)), untilTakeover},
		{"replica cut from etcd", onOther(fromEtcd(harness.Cut)), brief},
		{"replica's link to etcd stalls", onOther(fromEtcd(harness.Stall)), brief},
		{"etcd's responses to a replica stall", onOther(fromEtcd(harness.StallResponses)), brief},
		{"etcd's responses to the publisher stall", onPublisher(fromEtcd(harness.StallResponses)), brief},
		{"history compacted", func(c *Cluster) func() { c.compact(); return func() {} }, brief},
		{"history compacted while a replica is disconnected", compactBehind, brief},
		{"history compacted when etcd restarts", compactAtRestart, brief},
		{"packets of every link lost and delayed", func(c *Cluster) func() { return c.setTraffic(harness.Lose, c.links()...) }, brief},
	}
}

// linkFaults are faults that can occur together with any other fault.
func linkFaults() []fault {
	return []fault{
		{"a replica cut from NATS", onSome(fromNATS(harness.Cut)), brief},
		{"a replica's link to NATS stalls", onSome(fromNATS(harness.Stall)), brief},
		{"a replica cut from etcd", onSome(fromEtcd(harness.Cut)), brief},
		{"etcd's responses to a replica stall", onSome(fromEtcd(harness.StallResponses)), brief},
	}
}

// killEtcd kills all members. The repair starts them together, because none becomes healthy alone.
func killEtcd(c *Cluster) func() {
	for _, m := range c.etcd {
		m.Kill()
	}
	return func() { harness.StartTogether(c.members()) }
}

// freezeEtcd stops all members of etcd with SIGSTOP.
func freezeEtcd(c *Cluster) func() {
	for _, m := range c.etcd {
		m.Pause()
	}
	return func() {
		for _, m := range c.etcd {
			m.Resume()
		}
	}
}

// compactBehind disconnects a replica and compacts the history before it reconnects.
func compactBehind(c *Cluster) func() {
	_, other := c.roles()
	repair := c.setTraffic(harness.Cut, slices.Concat(other.toNATS, other.toEtcd)...)
	return func() {
		c.compact()
		repair()
	}
}

func compactAtRestart(c *Cluster) func() {
	restart := killEtcd(c)
	return func() {
		restart()
		c.compact()
	}
}
