package robustness

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"time"

	"binnacle/e2e/harness"
)

// memberFaults are faults of an etcd cluster.
func memberFaults() []fault {
	return []fault{
		{"etcd's leader killed", atLeader(func(m *member) func() { return killProcess(m) }), brief},
		{"etcd's leader paused", atLeader(func(m *member) func() { return pauseProcess(m) }), brief},
		{"etcd's leader moved", moveLeader, brief},
		{"a member of etcd replaced through a learner", replaceMember, brief},
		{"a replica cut from some members of etcd", atAnyReplica(cutFromOtherMembers), brief},
	}
}

// diskFaults are faults of the disks of all etcd members or of the leader's disk.
func diskFaults() []fault {
	return []fault{
		{"the disk of etcd's leader slow", atLeader(slowDownDisk), brief},
		{"all disks of etcd slow", slowDownAllDisks, brief},
		{"the disk of etcd's leader full", fillLeaderDisk, brief},
		{"all disks of etcd full", fillAllDisks, brief},
	}
}

// slowFlush is the time of a flush on a slow disk. It is longer than etcd's election timeout.
const slowFlush = 1200 * time.Millisecond

// leader returns the leader of etcd.
func (c *Cluster) leader() (leader *member) {
	c.t.Helper()
	harness.Eventually(c.t, waitTimeout, "a leader of etcd", func() error {
		for _, m := range c.etcd {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			status, err := c.client.Status(ctx, m.Endpoint)
			cancel()
			if err == nil && status.Leader == status.Header.MemberId {
				leader = m
				return nil
			}
		}
		return errors.New("no member reports that it is the leader")
	})
	return leader
}

// atLeader returns a fault of the leader of etcd.
func atLeader(inject func(*member) func()) func(*Cluster) func() {
	return func(c *Cluster) func() {
		c.t.Helper()
		return inject(c.leader())
	}
}

// moveLeader moves the leadership to another member.
func moveLeader(cluster *Cluster) func() {
	cluster.t.Helper()
	leader := cluster.leader()
	client := harness.EtcdClient(cluster.t, []*harness.Etcd{leader.Etcd})
	for _, i := range cluster.rand.Perm(len(cluster.etcd)) {
		if cluster.etcd[i] == leader {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), waitTimeout)
		defer cancel()
		status, err := cluster.client.Status(ctx, cluster.etcd[i].Endpoint)
		if err != nil {
			cluster.t.Fatalf("status of an etcd member: %v", err)
		}
		if _, err := client.MoveLeader(ctx, status.Header.MemberId); err != nil {
			cluster.t.Fatalf("move the leader of etcd: %v", err)
		}
		break
	}
	return func() {}
}

// replaceMember adds a member as a learner, promotes it, removes another member and redirects the
// replicas' links from that member to the new one.
func replaceMember(cluster *Cluster) func() {
	cluster.t.Helper()
	next := &member{disk: &harness.Disk{}}
	var flags []string
	if cluster.topology.failingDisks {
		var err error
		if next.disk, err = harness.StartDisk(cluster.t); err != nil {
			cluster.t.Fatal(err)
		}
		flags = append(flags, "--data-dir="+filepath.Join(next.disk.Dir, "etcd"))
	}
	next.Etcd = harness.Join(cluster.t, cluster.etcdMembers(), flags...)
	i := cluster.rand.IntN(len(cluster.etcd))
	cluster.client.SetEndpoints(append(cluster.client.Endpoints(), next.Endpoint)...)
	remaining := slices.Delete(cluster.etcdMembers(), i, i+1)
	harness.Leave(cluster.t, cluster.etcd[i].Etcd, append(remaining, next.Etcd))
	cluster.etcd[i] = next
	var endpoints []string
	for _, m := range cluster.etcd {
		endpoints = append(endpoints, m.Endpoint)
	}
	cluster.client.SetEndpoints(endpoints...)
	for _, r := range cluster.replicas {
		r.toEtcd[i].SetTargets(hostPort(next.Endpoint))
		r.toEtcd[i].Reset()
	}
	return func() {}
}

// cutFromOtherMembers leaves a replica connected to only one member.
func cutFromOtherMembers(cluster *Cluster, isolated *replica) func() {
	var links []*harness.Proxy
	for _, i := range cluster.rand.Perm(len(isolated.toEtcd))[1:] {
		links = append(links, isolated.toEtcd[i])
	}
	return cluster.setTraffic(harness.Cut, links...)
}

// slowDownDisk makes the disk of a member slow.
func slowDownDisk(slowed *member) func() {
	slowed.disk.Slow(slowFlush)
	return func() { slowed.disk.Slow(0) }
}

// slowDownAllDisks slows down the disks of all members.
func slowDownAllDisks(cluster *Cluster) func() {
	for _, m := range cluster.etcd {
		slowDownDisk(m)
	}
	return func() {
		for _, m := range cluster.etcd {
			m.disk.Slow(0)
		}
	}
}

// fillLeaderDisk fills the leader's disk, so that it exits at its next write. The repair frees the
// disk and restarts the member.
func fillLeaderDisk(cluster *Cluster) func() {
	m := cluster.leader()
	m.disk.Fill(true)
	return func() {
		cluster.t.Helper()
		harness.Eventually(cluster.t, waitTimeout, "the exit of a member with a full disk", func() error {
			if m.Running() {
				return errors.New("still running")
			}
			return nil
		})
		m.disk.Fill(false)
		m.Start()
	}
}

// fillAllDisks fills the disks of all members.
func fillAllDisks(cluster *Cluster) func() {
	for _, m := range cluster.etcd {
		m.disk.Fill(true)
	}
	return func() {
		for _, m := range cluster.etcd {
			m.Kill()
			m.disk.Fill(false)
		}
		harness.StartTogether(cluster.etcdMembers())
	}
}
