package fanout

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// step is an event in a suite.
type step struct {
	what    string
	replica int
	n       int
}

var steps = []string{
	"write", "write", "write", "burst", "large", "bump", "compact",
	"wait", "wait", "drop", "repeat", "damage", "swap", "cut", "join",
	"depose", "kill", "refollow", "break", "down", "up", "stall", "go", "restore", "echo",
}

func drawSteps(t *rapid.T) []step {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) step {
		return step{
			what:    rapid.SampledFrom(steps).Draw(t, "what"),
			replica: rapid.IntRange(0, 2).Draw(t, "replica"),
			n:       rapid.IntRange(1, 5).Draw(t, "n"),
		}
	}), 1, 60).Draw(t, "steps")
}

// runStep executes one step of a schedule.
func (s *suite) runStep(st step) {
	replica := s.replicas[st.replica]
	switch st.what {
	case "write":
		s.store.write(st.n, 50)
	case "burst":
		for range 20 * st.n {
			s.store.write(1, 50)
		}
	case "large":
		s.store.write(1, 5000)
	case "bump":
		s.store.writeOutsideRoot()
	case "compact":
		s.compactIfSafe()
	case "restore":
		s.store.restore(int64(st.n), int64(3*st.replica))
	case "wait":
		// From a fraction of a heartbeat to more than all timeouts.
		time.Sleep(20 * time.Millisecond << (2 * st.n))
	case "drop":
		replica.node.setFaults(st.n, 0, 0, 0)
	case "repeat":
		replica.node.setFaults(0, st.n, 0, 0)
	case "damage":
		replica.node.setFaults(0, 0, st.n, 0)
	case "swap":
		replica.node.setFaults(0, 0, 0, st.n)
	case "echo":
		replica.node.redeliverEarlier(2 * st.n)
	case "cut":
		replica.node.setConnected(false)
	case "join":
		replica.node.setConnected(true)
	case "depose":
		s.elector.endCurrentTerm()
	case "kill":
		s.replaceReplica(st.replica)
	case "refollow":
		replica.cancelFollow()
		synctest.Wait()
		replica.startFollow(s.store)
	case "break":
		s.store.breakWatches()
	case "down", "up":
		s.store.setDown(st.what == "down")
	case "stall", "go":
		s.store.setStalled(st.what == "stall")
	}
	if st.n%2 == 0 {
		synctest.Wait()
	}
}

// compactIfSafe compacts the store unless a replica is in a discarded history, which could not be
// detected afterwards.
func (s *suite) compactIfSafe() {
	for _, r := range s.replicas {
		if !s.store.contains(r.rec.at()) {
			return
		}
	}
	s.store.compact()
}

// replaceReplica ends a replica without notice to the others and starts a new one with its history.
func (s *suite) replaceReplica(i int) {
	r := s.replicas[i]
	r.node.setConnected(false)
	r.stop()
	n := &replica{node: newBusNode(s.bus), from: r.from}
	n.Fanout = mustFanout(s.store, s.elector, r.id)
	n.dial = n.node.dial
	n.rec.applied = r.rec.applied
	n.rec.position = r.rec.position
	n.rec.events = r.rec.events
	n.rec.err = r.rec.err
	s.replicas[i] = n
	n.startRun()
	n.startFollow(s.store)
}

func (s *suite) healAll() {
	s.store.setDown(false)
	s.store.setStalled(false)
	for _, r := range s.replicas {
		r.node.setFaults(0, 0, 0, 0)
		r.node.setConnected(true)
	}
	s.settle(2 * time.Minute)
	s.store.write(1, 10)
	s.settle(time.Minute)
}

// TestReplicasRecoverFromRandomFaults runs faults in random order. After they end, each replica
// has the store's history in order, without gaps or repetitions, and one store watch serves all.
func TestReplicasRecoverFromRandomFaults(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		plan := drawSteps(rt)
		var failure error
		synctest.Test(t, func(t *testing.T) {
			suite := newSuite(t, 3, 4096)
			suite.startAll()
			defer suite.stopAll()
			for i, st := range plan {
				suite.runStep(st)
				for j, r := range suite.replicas {
					r.rec.mu.Lock()
					err := r.rec.err
					r.rec.mu.Unlock()
					if err != nil {
						failure = fmt.Errorf("step %d (%+v), replica %d: %w", i, st, j, err)
						return
					}
				}
			}
			suite.healAll()
			if failure = suite.checkConverged(); failure == nil {
				failure = suite.onStream()
			}
		})
		if failure != nil {
			rt.Fatal(failure)
		}
	})
}
