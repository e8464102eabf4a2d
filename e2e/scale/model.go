package main

import "time"

// Units are what a unit of work costs.
type Units struct {
	// CPU of one write: of the replica that is asked, of etcd where it does one after the
	// other, and of each replica that takes the change from NATS.
	Write, Etcd, Apply time.Duration
	// Sync is the time until etcd's log is on disk, once for all writes that wait.
	Sync time.Duration
	// Hop is the time of a message between processes.
	Hop time.Duration
	// CPU of a delivery, to a watcher of everything and to one of little.
	Delivery, Narrow time.Duration
	// Bytes of an object as stored and as an event; memory of an object, of a watcher
	// and of a server without either.
	Stored, Event, Object, Watcher, Idle float64
	// Load is the CPU until an object is served after a start.
	Load time.Duration
}

// Measured are costs that docs/dev/performance.md has, of a quiet machine: where only a busy
// one was measured, what is left of that when a create cost 2.5 times as much there. Sync
// and Hop are assumed: a disk with power-loss protection, and a network of one data center.
func Measured() Units {
	return Units{
		Write: 900 * time.Microsecond, Etcd: 150 * time.Microsecond, Apply: 80 * time.Microsecond,
		Sync: time.Millisecond, Hop: 200 * time.Microsecond,
		Delivery: 27 * time.Microsecond, Narrow: 55 * time.Microsecond,
		Stored: 4500, Event: 6000, Object: 2600, Watcher: 9 << 10, Idle: 75 << 20,
		Load: 40 * time.Microsecond,
	}
}

// Suite is what is asked of how many servers.
type Suite struct {
	Name            string
	Objects         int
	Watchers        int // of little: one object, one node
	Told            int // of those, how many each write is told to
	Broad           int // watchers of everything that is written
	Replicas, Cores int // API servers, and what each has
	Etcds           int // clusters that writes are spread over evenly
	Writes          float64
	Readers         int // of the replicas, how many take no writes
	Leaves          int // NATS leaf nodes that replicas are behind; 0: none
}

// history is how long etcd keeps what was replaced.
const history = 5 * time.Minute

// Figures are what follows by arithmetic.
type Figures struct {
	ReplicaCores        float64 // of the busiest kind of replica
	ReplicaMemory       float64
	Load                time.Duration
	NATS, Clients       float64 // bytes a second, out of NATS and out of a replica
	Stored, WithHistory float64 // bytes of each etcd
}

// Computed is the arithmetic.
func (s Suite) Computed(u Units) Figures {
	n := float64(s.Replicas)
	deliveries := s.Writes * float64(s.Broad+s.Told) / n // of a replica, a second
	cpu := s.Writes*u.Apply.Seconds() +
		s.Writes*float64(s.Broad)/n*u.Delivery.Seconds() + s.Writes*float64(s.Told)/n*u.Narrow.Seconds() +
		s.Writes/float64(max(s.Replicas-s.Readers, 1))*u.Write.Seconds()
	hear := n - 1 // the publisher's own replica does not go through NATS
	if s.Leaves > 0 {
		hear = float64(s.Leaves)
	}
	etcds := float64(s.Etcds)
	return Figures{
		ReplicaCores:  cpu,
		ReplicaMemory: u.Idle + float64(s.Objects)*u.Object + float64(s.Watchers+s.Broad)/n*u.Watcher,
		Load:          time.Duration(s.Objects) * u.Load,
		NATS:          s.Writes * u.Stored * max(hear, 0),
		Clients:       deliveries * u.Event,
		Stored:        float64(s.Objects) * u.Stored / etcds,
		WithHistory:   (float64(s.Objects) + s.Writes*history.Seconds()) * u.Stored / etcds,
	}
}

// Suites returns the suites of the table; docs/user/sizing.md has an extract.
func Suites() []Suite {
	large := Suite{Objects: 1_000_000, Watchers: 100_000, Told: 3, Broad: 30, Replicas: 10, Cores: 8, Etcds: 1, Writes: 5000}
	with := func(name string, change func(*Suite)) Suite {
		s := large
		s.Name = name
		change(&s)
		return s
	}
	return []Suite{
		{Name: "10,000 objects, 2,000 watchers, 1 replica, 50 writes/s", Objects: 10_000, Watchers: 2000, Told: 20, Replicas: 1, Cores: 2, Etcds: 1, Writes: 50},
		{Name: "100,000 objects, 10,000 watchers, 3 replicas, 500 writes/s", Objects: 100_000, Watchers: 10_000, Told: 3, Broad: 30, Replicas: 3, Cores: 4, Etcds: 1, Writes: 500},
		with("1 M objects, 100,000 watchers, 10 replicas, 2,500 writes/s", func(s *Suite) { s.Writes = 2500 }),
		with("the same, 5,000 writes/s", func(*Suite) {}),
		with("the same, over 2 etcds", func(s *Suite) { s.Etcds = 2 }),
		with("the same, over 4 etcds", func(s *Suite) { s.Etcds = 4 }),
		with("over 4 etcds, 300 watchers of everything", func(s *Suite) { s.Etcds, s.Broad = 4, 300 }),
		with("over 4 etcds, 7 of the 10 only read", func(s *Suite) { s.Etcds, s.Readers = 4, 7 }),
		with("over 4 etcds, NATS leaf nodes in 3 zones", func(s *Suite) { s.Etcds, s.Leaves = 4, 3 }),
		with("over 4 etcds, 30 replicas, 27 of which only read, leaf nodes in 3 zones", func(s *Suite) { s.Etcds, s.Replicas, s.Readers, s.Leaves = 4, 30, 27, 3 }),
	}
}
