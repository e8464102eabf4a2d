package main

import "time"

// Costs holds the costs of single operations.
type Costs struct {
	// ReceiveWrite is the CPU of a write in the replica that receives it.
	ReceiveWrite time.Duration
	// EtcdWrite is the CPU of a write in etcd, which writes serially.
	EtcdWrite time.Duration
	// ApplyChange is the CPU of a write in each replica that receives the change from NATS.
	ApplyChange time.Duration
	// EtcdSync is the time to sync etcd's log, once for all waiting writes.
	EtcdSync time.Duration
	// HopLatency is the latency of a message between processes.
	HopLatency time.Duration
	// CPU of a delivery to a broad watcher (all objects) and to a narrow one (one object or node).
	BroadDelivery, NarrowDelivery time.Duration
	// Bytes of an object as stored and as an event.
	StoredBytes, EventBytes float64
	// Memory in bytes of an object, of a watcher, and of a server without objects and watchers.
	ObjectMemory, WatcherMemory, IdleMemory float64
	// LoadObject is the CPU per object to load the cache after a start.
	LoadObject time.Duration
}

// MeasuredCosts returns the costs from docs/dev/performance.md for a quiet machine. Costs measured
// only on a busy machine are divided by 2.5, the ratio of the costs of a create on the two
// machines. EtcdSync and HopLatency are assumed: a disk with power-loss protection and a network of
// one data center.
func MeasuredCosts() Costs {
	return Costs{
		ReceiveWrite: 900 * time.Microsecond, EtcdWrite: 150 * time.Microsecond, ApplyChange: 80 * time.Microsecond,
		EtcdSync: time.Millisecond, HopLatency: 200 * time.Microsecond,
		BroadDelivery: 27 * time.Microsecond, NarrowDelivery: 55 * time.Microsecond,
		StoredBytes: 4500, EventBytes: 6000, ObjectMemory: 2600, WatcherMemory: 9 << 10, IdleMemory: 75 << 20,
		LoadObject: 40 * time.Microsecond,
	}
}

// Suite is a load and the servers for it.
type Suite struct {
	Name             string
	Objects          int
	Watchers         int // narrow watchers: one object or one node
	MatchingWatchers int // narrow watchers that each write matches
	BroadWatchers    int // broad watchers, which receive every write
	Replicas, Cores  int // API servers, and cores of each
	Etcds            int // etcd clusters, with evenly spread writes
	Writes           float64
	Readers          int // replicas that receive no writes
	NATSLeafNodes    int // NATS leaf nodes between NATS and the replicas; 0 for none
}

// historyTime is the time for which etcd keeps replaced revisions.
const historyTime = 5 * time.Minute

// Figures holds the computed load of a suite.
type Figures struct {
	ReplicaCores                        float64       // of a replica that receives writes
	ReplicaMemory                       float64       // bytes
	LoadTime                            time.Duration // to load the cache after a start
	NATSBandwidth, ClientBandwidth      float64       // bytes per second, out of NATS and out of a replica
	StoredBytes, StoredBytesWithHistory float64       // bytes in each etcd
}

// ComputeFigures returns the figures of a suite.
func (s Suite) ComputeFigures(costs Costs) Figures {
	nodes := float64(s.Replicas)
	deliveries := s.Writes * float64(s.BroadWatchers+s.MatchingWatchers) / nodes // per replica and second
	applyCPU := s.Writes * costs.ApplyChange.Seconds()
	deliveryCPU := s.Writes / nodes * (float64(s.BroadWatchers)*costs.BroadDelivery.Seconds() +
		float64(s.MatchingWatchers)*costs.NarrowDelivery.Seconds())
	receiveCPU := s.Writes / float64(max(s.Replicas-s.Readers, 1)) * costs.ReceiveWrite.Seconds()
	receivers := nodes - 1 // the publisher's own replica does not use NATS
	if s.NATSLeafNodes > 0 {
		receivers = float64(s.NATSLeafNodes)
	}
	etcds := float64(s.Etcds)
	return Figures{
		ReplicaCores:           applyCPU + deliveryCPU + receiveCPU,
		ReplicaMemory:          costs.IdleMemory + float64(s.Objects)*costs.ObjectMemory + float64(s.Watchers+s.BroadWatchers)/nodes*costs.WatcherMemory,
		LoadTime:               time.Duration(s.Objects) * costs.LoadObject,
		NATSBandwidth:          s.Writes * costs.StoredBytes * max(receivers, 0),
		ClientBandwidth:        deliveries * costs.EventBytes,
		StoredBytes:            float64(s.Objects) * costs.StoredBytes / etcds,
		StoredBytesWithHistory: (float64(s.Objects) + s.Writes*historyTime.Seconds()) * costs.StoredBytes / etcds,
	}
}

// Suites returns the suites that this command prints; docs/user/sizing.md has an extract.
func Suites() []Suite {
	large := Suite{Objects: 1_000_000, Watchers: 100_000, MatchingWatchers: 3, BroadWatchers: 30, Replicas: 10, Cores: 8, Etcds: 1, Writes: 5000}
	with := func(name string, change func(*Suite)) Suite {
		s := large
		s.Name = name
		change(&s)
		return s
	}
	return []Suite{
		{
			Name:             "10,000 objects, 2,000 watchers, 1 replica, 50 writes/s",
			Objects:          10_000,
			Watchers:         2000,
			MatchingWatchers: 20,
			Replicas:         1,
			Cores:            2,
			Etcds:            1,
			Writes:           50,
		},
		{
			Name:             "100,000 objects, 10,000 watchers, 3 replicas, 500 writes/s",
			Objects:          100_000,
			Watchers:         10_000,
			MatchingWatchers: 3,
			BroadWatchers:    30,
			Replicas:         3,
			Cores:            4,
			Etcds:            1,
			Writes:           500,
		},
		with("1 M objects, 100,000 watchers, 10 replicas, 2,500 writes/s", func(s *Suite) { s.Writes = 2500 }),
		with("the same, 5,000 writes/s", func(*Suite) {}),
		with("the same, over 2 etcds", func(s *Suite) { s.Etcds = 2 }),
		with("the same, over 4 etcds", func(s *Suite) { s.Etcds = 4 }),
		with("over 4 etcds, 300 watchers of everything", func(s *Suite) { s.Etcds, s.BroadWatchers = 4, 300 }),
		with("over 4 etcds, 7 of the 10 only read", func(s *Suite) { s.Etcds, s.Readers = 4, 7 }),
		with("over 4 etcds, NATS leaf nodes in 3 zones", func(s *Suite) { s.Etcds, s.NATSLeafNodes = 4, 3 }),
		with("over 4 etcds, 30 replicas, 27 for reads only, leaf nodes in 3 zones", func(s *Suite) {
			s.Etcds, s.Replicas, s.Readers, s.NATSLeafNodes = 4, 30, 27, 3
		}),
	}
}
