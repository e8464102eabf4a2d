package fanout

import (
	"testing"
	"testing/synctest"
	"time"
)

// inSuite runs a scenario with a fake clock and three replicas on the stream. At the end all must
// have the whole history and be on the stream again.
func inSuite(t *testing.T, payload int, scenario func(t *testing.T, s *suite)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newSuite(t, 3, payload)
		s.startAll()
		defer s.stopAll()
		s.store.write(1, 100)
		s.settle(time.Second)
		if err := s.onStream(); err != nil {
			t.Fatalf("before: %v", err)
		}
		scenario(t, s)
		s.store.write(1, 100)
		s.settle(3 * time.Minute)
		if err := s.checkConverged(); err != nil {
			t.Fatal(err)
		}
		if err := s.onStream(); err != nil {
			t.Fatal(err)
		}
	})
}

func (s *suite) anyListener() *replica {
	for _, r := range s.replicas {
		if r != s.currentPublisher() {
			return r
		}
	}
	return nil
}

// TestReplicasRecoverFromFaults checks that all replicas have the whole history after each of
// several faults.
func TestReplicasRecoverFromFaults(t *testing.T) {
	writes := func(s *suite, n int) {
		for range n {
			s.store.write(1, 100)
			s.settle(10 * time.Millisecond)
		}
	}
	for name, scenario := range map[string]func(t *testing.T, s *suite){
		"nothing happens": func(t *testing.T, s *suite) {
			for _, r := range s.replicas {
				before := r.State().Changes
				s.settle(time.Hour)
				if after := r.State().Changes; after != before {
					t.Errorf("got %d changes of the source in an idle hour, want none", after-before)
				}
			}
		},
		"dropped messages": func(_ *testing.T, s *suite) {
			s.anyListener().node.setFaults(faults{drop: 3})
			writes(s, 10)
		},
		"the last message is dropped": func(_ *testing.T, s *suite) {
			s.anyListener().node.setFaults(faults{drop: 1})
			writes(s, 1)
			s.settle(2 * time.Second)
		},
		"repeated messages": func(t *testing.T, s *suite) {
			listener := s.anyListener()
			before := listener.State().Changes
			listener.node.setFaults(faults{repeat: 5})
			writes(s, 10)
			if listener.State().Changes != before {
				t.Error("repeated messages: got the source changed, want the replica on the stream")
			}
		},
		"swapped messages": func(_ *testing.T, s *suite) {
			s.anyListener().node.setFaults(faults{swap: 2})
			writes(s, 10)
		},
		"damaged messages": func(_ *testing.T, s *suite) {
			s.anyListener().node.setFaults(faults{damage: 2})
			writes(s, 10)
		},
		"listener cut off": func(t *testing.T, s *suite) {
			listener := s.anyListener()
			listener.node.setConnected(false)
			writes(s, 10)
			if got := listener.State().Source; got != sourceStore || listener.recorded.revision() != s.store.newest() {
				t.Errorf("got source %s at %d, want store at %d", got, listener.recorded.revision(), s.store.newest())
			}
			listener.node.setConnected(true)
			writes(s, 3)
		},
		"publisher cut off for a moment": func(t *testing.T, s *suite) {
			p := s.currentPublisher()
			p.node.setConnected(false)
			writes(s, 10)
			if p.State().Source != sourceLocal || p.recorded.revision() != s.store.newest() {
				t.Error("publisher without a connection: got its own replica behind, want it current")
			}
			p.node.setConnected(true)
		},
		"publisher cut off for long": func(t *testing.T, s *suite) {
			p := s.currentPublisher()
			p.node.setConnected(false)
			s.settle(20 * time.Second)
			if s.currentPublisher() == p {
				t.Error("unreachable publisher: got it elected, want another one")
			}
			writes(s, 3)
			p.node.setConnected(true)
		},
		"all cut off": func(_ *testing.T, s *suite) {
			for _, r := range s.replicas {
				r.node.setConnected(false)
			}
			writes(s, 10)
			s.settle(time.Minute)
			for _, r := range s.replicas {
				r.node.setConnected(true)
			}
		},
		"election lost": func(_ *testing.T, s *suite) {
			s.elector.endCurrentTerm()
			writes(s, 3)
			s.settle(10 * time.Second)
			s.elector.endCurrentTerm()
			writes(s, 3)
		},
		"publisher's store watch breaks": func(t *testing.T, s *suite) {
			s.store.breakWatches()
			writes(s, 10)
		},
		"store watch stalls": func(_ *testing.T, s *suite) {
			s.store.setStalled(true)
			writes(s, 3)
			s.settle(10 * time.Second)
			s.store.setStalled(false)
		},
		"store fails": func(t *testing.T, s *suite) {
			s.store.setDown(true)
			s.store.breakWatches()
			s.settle(30 * time.Second)
			for _, r := range s.replicas {
				if r.Check(t.Context()) == nil {
					t.Error("replica without contact to the store: got no error of Check, want one")
				}
			}
			s.store.setDown(false)
		},
		"revision above the payload limit": func(t *testing.T, s *suite) {
			s.store.write(1, 5000)
			writes(s, 3)
			s.store.write(40, 200)
		},
		"many revisions at once": func(_ *testing.T, s *suite) {
			for range 500 {
				s.store.write(2, 100)
			}
		},
		"store restored": func(_ *testing.T, s *suite) {
			writes(s, 10)
			s.store.restore(5, 0)
		},
		"store restored and at the same revision again": func(t *testing.T, s *suite) {
			writes(s, 10)
			s.store.restore(5, 5)
			s.settle(5 * time.Second)
			for _, r := range s.replicas {
				// Listeners detect the restoration by the first message of the new history.
				if r == s.currentPublisher() && r.recorded.loads == 0 {
					t.Error("restored store: got no reload of the publisher, want one")
				}
			}
			writes(s, 10)
		},
		"store restored and further at once": func(_ *testing.T, s *suite) {
			writes(s, 10)
			s.store.restore(5, 20)
		},
		"compaction": func(t *testing.T, s *suite) {
			listener := s.anyListener()
			listener.node.setConnected(false)
			s.store.setDown(true)
			s.store.breakWatches()
			writes(s, 3)
			s.store.compact()
			s.store.setDown(false)
			s.settle(5 * time.Minute)
			listener.node.setConnected(true)
			if listener.recorded.loads == 0 {
				t.Error("compacted changes: got no reload, want one")
			}
		},
	} {
		t.Run(name, func(t *testing.T) { inSuite(t, 4096, scenario) })
	}
}
