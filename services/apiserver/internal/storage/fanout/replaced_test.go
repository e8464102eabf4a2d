package fanout

import (
	"testing"
	"testing/synctest"
	"time"

	"binnacle/services/apiserver/internal/storage"
)

// TestLaterPublisherMustAnswerRequest checks that a message of a later publisher is not applied
// before that publisher has checked the store, and makes a replica leave the stream only once.
func TestLaterPublisherMustAnswerRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := settledSuite(t, 2)
		l := s.anyListener()
		before := l.State()
		at := before.Revision
		for i := range 5 {
			next := message{
				cluster:  l.cluster,
				epoch:    s.store.newest() + 1,
				chain:    5,
				previous: at - 1,
				revision: at + 1,
				events: []storage.Event{
					l.rec.events[len(l.rec.events)-1],
					{Type: storage.Created, Key: testRoot + "new", Revision: at + 1},
				},
			}
			if i == 1 {
				next.answers = []uint64{1}
			}
			s.bus.send(nil, l.changeSubject, appendMessage(nil, &next))
			s.awaitIdle()
		}
		if after := l.State(); after.Revision != at || after.Changes != before.Changes+2 || after.Source != sourceNATS {
			t.Errorf("state changed from %+v to %+v, want two source changes", before, after)
		}
	})
}

// TestLateMessageIsNotAppliedAfterReload checks that a message that was in flight when the store
// was restored is not applied by a replica that has reloaded, even if its revision continues there.
func TestLateMessageIsNotAppliedAfterReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := settledSuite(t, 3)
		l := s.anyListener()
		s.store.writeOutsideRoot()
		s.store.writeOutsideRoot() // the first one remains after the restoration
		s.store.write(1, 10)
		s.awaitIdle()
		l.node.mu.Lock()
		late := l.node.recent[len(l.node.recent)-1]
		l.node.mu.Unlock()
		s.elector.suspendElection()
		s.store.restore(2, 0)
		for range 10 {
			s.settle(DefaultHeartbeat)
			late()
		}
		s.awaitIdle()
		if l.rec.loads != 1 || len(l.rec.events) > 0 {
			t.Errorf("loaded %d times with events %+v, want 1 without events", l.rec.loads, l.rec.events)
		}
		s.elector.resumeElection()
		s.settle(time.Minute)
		if err := s.onStream(); err != nil {
			t.Error(err)
		}
	})
}

// TestAnotherHistoryIsNotApplied checks that a message of another history is not applied even if
// its revisions continue those of the replica. The replica reads from the store.
func TestAnotherHistoryIsNotApplied(t *testing.T) {
	for name, change := range map[string]func(m *message, known storage.Event){
		"the known change is another one": func(m *message, known storage.Event) {
			known.Key += "-"
			m.previous, m.events = m.previous-1, append([]storage.Event{known}, m.events...)
		},
		"the known change is missing": func(m *message, _ storage.Event) { m.previous-- },
		"another change before":       func(m *message, known storage.Event) { known.Key += "-"; m.last = storage.ChangeIDOf(&known) },
		"no change before":            func(*message, storage.Event) {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := settledSuite(t, 2)
				l := s.anyListener()
				before, events := l.State(), len(l.rec.events)
				l.inbox.mu.Lock()
				epoch, chain := l.inbox.epoch, l.inbox.chain
				l.inbox.mu.Unlock()
				next := message{
					cluster:  l.cluster,
					epoch:    epoch,
					chain:    chain,
					previous: before.Revision,
					revision: before.Revision + 1,
					events:   []storage.Event{{Type: storage.Created, Key: testRoot + "new", Revision: before.Revision + 1}},
				}
				change(&next, l.rec.events[events-1])
				s.bus.send(nil, l.changeSubject, appendMessage(nil, &next))
				s.awaitIdle()
				if after := l.State(); after.Changes == before.Changes || after.Revision != before.Revision || len(l.rec.events) != events {
					t.Errorf("got state %+v after %+v, %d events after %d, want a change at the same revision without events",
						after, before, len(l.rec.events), events)
				}
			})
		})
	}
}
