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

// fault is a kind of damage. damage does it and returns its repair; held says
// for how long it lasts at least.
type fault struct {
	name   string
	damage func(*Cluster) (repair func())
	held   hold
}

// hold is how long a fault lasts.
type hold int

// A fault is brief, or lasts until another replica has taken over publishing, or
// until a replica has noticed that it does not hear all changes from NATS.
const (
	brief hold = iota
	untilTakeover
	untilNoticed
)

// process is what can be damaged directly.
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
		c.t.Fatalf("the replica did not end well: %v", err)
	}
	return r.Start
}

// cut changes the traffic of links. Those that were held back die with it, or
// live on, as chance will have it.
func (c *Cluster) cut(how harness.Traffic, links ...*harness.Proxy) func() {
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

// onSome is for faults that happen beside others: it asks nobody who he is.
func onSome(do func(*Cluster, *replica) func()) func(*Cluster) func() {
	return func(c *Cluster) func() { return do(c, c.replicas[c.rand.IntN(len(c.replicas))]) }
}

func killReplica(_ *Cluster, r *replica) func()   { return kill(r) }
func freezeReplica(_ *Cluster, r *replica) func() { return freeze(r) }

func fromNATS(how harness.Traffic) func(*Cluster, *replica) func() {
	return func(c *Cluster, r *replica) func() { return c.cut(how, r.toNATS...) }
}

func fromEtcd(how harness.Traffic) func(*Cluster, *replica) func() {
	return func(c *Cluster, r *replica) func() { return c.cut(how, r.toEtcd...) }
}

// replicaFaults are those of the replicas themselves.
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

// natsFaults are those of NATS and the ways to it.
func natsFaults() []fault {
	return []fault{
		{"a NATS server killed", onNATS(kill), brief},
		{"a NATS server paused", onNATS(freeze), brief},
		{"all NATS servers killed", allNATS(kill), untilNoticed},
		{"publisher cut from NATS", onPublisher(fromNATS(harness.Cut)), brief},
		{"publisher cut from NATS until takeover", onPublisher(fromNATS(harness.Cut)), untilTakeover},
		{"publisher's way to NATS stalls", onPublisher(fromNATS(harness.Stall)), untilNoticed},
		{"replica cut from NATS", onOther(fromNATS(harness.Cut)), brief},
		{"replica's way to NATS stalls", onOther(fromNATS(harness.Stall)), untilNoticed},
		{"replica hears nothing from NATS", onOther(fromNATS(harness.StallResponses)), untilNoticed},
		{"objects larger than a message of NATS", inParts, brief},
		{"a NATS server split from the others", splitNATS, brief},
		{"an old publisher goes on", oldPublisher, brief},
		{"damaged messages, and ones of other versions", strangeMessages, untilNoticed},
	}
}

// inParts writes an object that NATS carries in parts only, where only the
// watches of all namespaces see it: to read it takes the clients long.
func inParts(c *Cluster) func() {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
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
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := maps.Delete(ctx, large.Name, metav1.DeleteOptions{}); err != nil {
			c.t.Fatalf("delete the large object: %v", err)
		}
	}
}

// largeSize is as much as an object may hold, which with its metadata is more
// than a NATS server takes by default.
const largeSize = 1 << 20

// etcdFaults are those of etcd and the ways to it.
func etcdFaults() []fault {
	return []fault{
		{"etcd killed", killEtcd, brief},
		{"etcd paused", freezeEtcd, brief},
		{"publisher cut from etcd", onPublisher(fromEtcd(harness.Cut)), brief},
		{"publisher cut from etcd until takeover", onPublisher(fromEtcd(harness.Cut)), untilTakeover},
		{"replica cut from etcd", onOther(fromEtcd(harness.Cut)), brief},
		{"replica's way to etcd stalls", onOther(fromEtcd(harness.Stall)), brief},
		{"etcd's answers to a replica stall", onOther(fromEtcd(harness.StallResponses)), brief},
		{"etcd's answers to the publisher stall", onPublisher(fromEtcd(harness.StallResponses)), brief},
		{"history compacted", func(c *Cluster) func() { c.compact(); return func() {} }, brief},
		{"history compacted behind a replica", compactBehind, brief},
		{"history compacted when etcd restarts", compactAtRestart, brief},
		{"packets of every link lost and late", func(c *Cluster) func() { return c.cut(harness.Lose, c.links()...) }, brief},
	}
}

// linkFaults are those that can happen beside any other.
func linkFaults() []fault {
	return []fault{
		{"a replica cut from NATS", onSome(fromNATS(harness.Cut)), brief},
		{"a replica's way to NATS stalls", onSome(fromNATS(harness.Stall)), brief},
		{"a replica cut from etcd", onSome(fromEtcd(harness.Cut)), brief},
		{"etcd's answers to a replica stall", onSome(fromEtcd(harness.StallResponses)), brief},
	}
}

// killEtcd kills all members, who are started together: none is healthy alone.
func killEtcd(c *Cluster) func() {
	for _, m := range c.etcd {
		m.Kill()
	}
	return func() { harness.StartTogether(c.members()) }
}

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

// compactBehind cuts a replica off from all news, and forgets them before it
// hears of them.
func compactBehind(c *Cluster) func() {
	_, other := c.roles()
	repair := c.cut(harness.Cut, slices.Concat(other.toNATS, other.toEtcd)...)
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
