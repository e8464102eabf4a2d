package fanout

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// step is one action on a suite. amount scales it, where it has a size.
type step struct {
	action  string
	replica int
	amount  int
}

var steps = []string{
	"write", "write", "write", "burst", "large", "write outside root", "compact",
	"wait", "wait", "drop", "repeat", "damage", "swap", "disconnect", "reconnect",
	"end term", "replace replica", "refollow", "break", "down", "up", "stall", "unstall", "restore", "redeliver",
}

func drawSteps(t *rapid.T) []step {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) step {
		return step{
			action:  rapid.SampledFrom(steps).Draw(t, "action"),
			replica: rapid.IntRange(0, 2).Draw(t, "replica"),
			amount:  rapid.IntRange(1, 5).Draw(t, "amount"),
		}
	}), 1, 60).Draw(t, "steps")
}

// runStep executes one step of a schedule.
func (s *suite) runStep(next step) {
	replica := s.replicas[next.replica]
	switch next.action {
	case "write":
		s.store.write(next.amount, 50)
	case "burst":
		for range 20 * next.amount {
			s.store.write(1, 50)
		}
	case "large":
		s.store.write(1, 5000)
	case "write outside root":
		s.store.writeOutsideRoot()
	case "compact":
		s.compactIfSafe()
	case "restore":
		s.store.restore(int64(next.amount), int64(3*next.replica))
	case "wait":
		// From a fraction of a heartbeat to more than all timeouts.
		time.Sleep(20 * time.Millisecond << (2 * next.amount))
	case "drop":
		replica.node.setFaults(faults{drop: next.amount})
	case "repeat":
		replica.node.setFaults(faults{repeat: next.amount})
	case "damage":
		replica.node.setFaults(faults{damage: next.amount})
	case "swap":
		replica.node.setFaults(faults{swap: next.amount})
	case "redeliver":
		replica.node.redeliverEarlier(2 * next.amount)
	case "disconnect":
		replica.node.setConnected(false)
	case "reconnect":
		replica.node.setConnected(true)
	case "end term":
		s.elector.endCurrentTerm()
	case "replace replica":
		s.replaceReplica(next.replica)
	case "refollow":
		replica.cancelFollow()
		synctest.Wait()
		replica.startFollow(s.store)
	case "break":
		s.store.breakWatches()
	case "down", "up":
		s.store.setDown(next.action == "down")
	case "stall", "unstall":
		s.store.setStalled(next.action == "stall")
	}
	if next.amount%2 == 0 {
		synctest.Wait()
	}
}

// compactIfSafe compacts the store unless a replica is in a discarded history, which could not be
// detected afterwards.
func (s *suite) compactIfSafe() {
	for _, r := range s.replicas {
		if !s.store.contains(r.recorded.currentPosition()) {
			return
		}
	}
	s.store.compact()
}

// replaceReplica ends a replica without notice to the other replicas, and starts another one with its
// history.
func (s *suite) replaceReplica(index int) {
	ended := s.replicas[index]
	ended.node.setConnected(false)
	ended.stop()
	successor := &replica{node: newBusNode(s.bus), from: ended.from}
	successor.Fanout = newTestFanout(s.store, s.elector, ended.id)
	successor.dial = successor.node.dial
	successor.recorded.applied = ended.recorded.applied
	successor.recorded.position = ended.recorded.position
	successor.recorded.events = ended.recorded.events
	successor.recorded.err = ended.recorded.err
	s.replicas[index] = successor
	successor.startRun()
	successor.startFollow(s.store)
}

func (s *suite) healAll() {
	s.store.setDown(false)
	s.store.setStalled(false)
	for _, r := range s.replicas {
		r.node.setFaults(faults{})
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
					r.recorded.mu.Lock()
					err := r.recorded.err
					r.recorded.mu.Unlock()
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
