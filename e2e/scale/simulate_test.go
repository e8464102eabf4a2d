package main

import (
	"math"
	"testing"
	"time"
)

const short = 2 * time.Second

// TestSingleWriteTakesSumOfCosts checks that the latency of a write without queueing is the sum of
// the costs of its steps.
func TestSingleWriteTakesSumOfCosts(t *testing.T) {
	u := MeasuredCosts()
	s := Suite{Objects: 1, BroadWatchers: 1, Replicas: 1, Cores: 2, Etcds: 1, Writes: 5}
	result := Simulate(s, u, 20*time.Second, 1)
	want := u.ReceiveWrite + u.HopLatency + u.EtcdSync + u.EtcdWrite + u.HopLatency + u.ApplyChange +
		u.BroadDelivery + u.HopLatency
	if result.P50 != want {
		t.Errorf("latency of a single write: got %v, want %v", result.P50, want)
	}
	if result.Overloaded {
		t.Error("5 writes/s: got an overload, want none")
	}
}

// TestSimulatedCPUEqualsComputedCPU compares the simulation with the arithmetic.
func TestSimulatedCPUEqualsComputedCPU(t *testing.T) {
	u := MeasuredCosts()
	s := Suite{Objects: 1, BroadWatchers: 9, MatchingWatchers: 2, Replicas: 1, Cores: 8, Etcds: 1, Writes: 1000}
	got, want := Simulate(s, u, 10*time.Second, 1).ReplicaCores, s.ComputeFigures(u).ReplicaCores
	if math.Abs(got-want)/want > 0.05 {
		t.Errorf("got %.3f simulated cores, want %.3f", got, want)
	}
}

// TestOverloadIsReported checks that a simulation reports when etcd or the replicas do not keep up.
func TestOverloadIsReported(t *testing.T) {
	costs := MeasuredCosts()
	most := float64(time.Second / costs.EtcdWrite)
	for _, test := range []struct {
		name       string
		suite      Suite
		overloaded bool
	}{
		{name: "fewer writes than etcd can process", suite: Suite{BroadWatchers: 1, Replicas: 4, Cores: 8, Etcds: 1, Writes: most * 0.8}},
		{
			name:       "more writes than etcd can process",
			suite:      Suite{BroadWatchers: 1, Replicas: 4, Cores: 8, Etcds: 1, Writes: most * 1.3},
			overloaded: true,
		},
		{name: "the same over two etcds", suite: Suite{BroadWatchers: 1, Replicas: 4, Cores: 8, Etcds: 2, Writes: most * 1.3}},
		{
			name:       "more deliveries than the cores can process",
			suite:      Suite{BroadWatchers: 400, Replicas: 1, Cores: 2, Etcds: 1, Writes: 1000},
			overloaded: true,
		},
		{name: "the same over ten replicas", suite: Suite{BroadWatchers: 400, Replicas: 10, Cores: 2, Etcds: 1, Writes: 1000}},
	} {
		if r := Simulate(test.suite, costs, short, 1); r.Overloaded != test.overloaded {
			t.Errorf("%s: got overloaded %t with p50 %v, want %t", test.name, r.Overloaded, r.P50, test.overloaded)
		}
	}
}

// TestSameSeedGivesSameResult checks that a simulation depends only on its parameters and the seed.
func TestSameSeedGivesSameResult(t *testing.T) {
	s := Suite{BroadWatchers: 3, MatchingWatchers: 3, Replicas: 3, Cores: 4, Etcds: 2, Writes: 500}
	if a, b := Simulate(s, MeasuredCosts(), short, 7), Simulate(s, MeasuredCosts(), short, 7); a != b {
		t.Errorf("got %+v and %+v, want equal results", a, b)
	}
}

// TestTwoEtcdsHoldHalfTheDataEach checks that the computed data is divided between etcd clusters,
// and that the memory of replicas is not.
func TestTwoEtcdsHoldHalfTheDataEach(t *testing.T) {
	one := Suite{Objects: 1000, Replicas: 2, Cores: 1, Etcds: 1, Writes: 10}
	two := one
	two.Etcds = 2
	u := MeasuredCosts()
	if a, b := one.ComputeFigures(u), two.ComputeFigures(u); a.StoredBytesWithHistory != 2*b.StoredBytesWithHistory ||
		a.ReplicaMemory != b.ReplicaMemory {
		t.Errorf("one etcd: got %+v; two: %+v, want a history of %v and a replica memory of %v for one", a, b,
			2*b.StoredBytesWithHistory, b.ReplicaMemory)
	}
}
