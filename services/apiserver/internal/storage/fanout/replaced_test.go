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
		suite := settledSuite(t, 2)
		replica := suite.anyListener()
		before := replica.State()
		at := before.Revision
		for i := range 5 {
			next := message{
				cluster:  replica.cluster,
				epoch:    suite.store.newest() + 1,
				chain:    5,
				previous: at - 1,
				revision: at + 1,
				events: []storage.Event{
					replica.recorded.events[len(replica.recorded.events)-1],
					{Type: storage.Created, Key: testRoot + "new", Revision: at + 1},
				},
			}
			if i == 1 {
				next.answers = []uint64{1}
			}
			suite.bus.send(nil, replica.changeSubject, appendMessage(nil, &next))
			suite.awaitIdle()
		}
		if after := replica.State(); after.Revision != at || after.Changes != before.Changes+2 || after.Source != sourceNATS {
			t.Errorf("state changed from %+v to %+v, want two source changes", before, after)
		}
	})
}

// TestMessageAfterUnknownChangeIsNotApplied checks that a message is not applied if its publisher
// knows a change that the replica would have applied.
func TestMessageAfterUnknownChangeIsNotApplied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		suite := settledSuite(t, 2)
		replica := suite.anyListener()
		suite.store.writeOutsideRoot() // the replica knows that nothing below the root changed
		suite.settle(2 * DefaultHeartbeat)
		before := replica.State()
		replica.inbox.mu.Lock()
		epoch, chain := replica.inbox.epoch, replica.inbox.chain
		replica.inbox.mu.Unlock()
		next := message{
			cluster:  replica.cluster,
			epoch:    epoch,
			chain:    chain,
			previous: before.Revision,
			last:     storage.ChangeIDOf(&storage.Event{Type: storage.Created, Key: testRoot + "unknown", Revision: before.Revision}),
			revision: before.Revision + 1,
			events:   []storage.Event{{Type: storage.Created, Key: testRoot + "new", Revision: before.Revision + 1}},
		}
		suite.bus.send(nil, replica.changeSubject, appendMessage(nil, &next))
		suite.awaitIdle()
		if after := replica.State(); after.Changes == before.Changes || after.Revision != before.Revision {
			t.Errorf("got state %+v after %+v, want a change of the source at the same revision", after, before)
		}
	})
}

// TestReplicaAheadOfStreamReadsFromStore checks that a replica leaves a stream that stays behind it:
// the store of the publisher may have been restored from a backup.
func TestReplicaAheadOfStreamReadsFromStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		suite := settledSuite(t, 2)
		replica := suite.anyListener()
		// 1. Without a publisher, the replica reads from the store.
		suite.elector.suspendElection()
		suite.elector.endCurrentTerm()
		suite.settle(time.Minute)
		replica.wantSource(t, sourceStore)

		// 2. The replica reads a change from the store and then joins a stream that does not have the
		// change yet.
		at := replica.State().Revision
		published := message{cluster: replica.cluster, epoch: at + 1, chain: 7, previous: at, revision: at}
		suite.settle(DefaultHeartbeat) // the replica notes its revision, which the stream must reach
		suite.store.write(1, 10)
		suite.awaitIdle()
		replica.inbox.mu.Lock()
		published.answers = []uint64{replica.inbox.joinRequest}
		replica.inbox.mu.Unlock()
		suite.bus.send(nil, replica.changeSubject, appendMessage(nil, &published))
		suite.awaitIdle()
		replica.wantSource(t, sourceNATS)

		// 3. The stream stays behind.
		published.answers = nil
		for range 12 {
			suite.settle(DefaultHeartbeat / 4)
			suite.bus.send(nil, replica.changeSubject, appendMessage(nil, &published))
		}
		suite.awaitIdle()
		replica.wantSource(t, sourceStore)
	})
}

// TestLateMessageIsNotAppliedAfterReload checks that a message that was in flight when the store
// was restored is not applied by a replica that has reloaded, even if its revision continues there.
func TestLateMessageIsNotAppliedAfterReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		suite := settledSuite(t, 3)
		replica := suite.anyListener()
		suite.store.writeOutsideRoot()
		suite.store.writeOutsideRoot() // the first one remains after the restoration
		suite.store.write(1, 10)
		suite.awaitIdle()
		replica.node.mu.Lock()
		late := replica.node.recent[len(replica.node.recent)-1]
		replica.node.mu.Unlock()
		suite.elector.suspendElection()
		suite.store.restore(2, 0)
		for range 10 {
			suite.settle(DefaultHeartbeat)
			late()
		}
		suite.awaitIdle()
		if replica.recorded.loads != 1 || len(replica.recorded.events) > 0 {
			t.Errorf("loaded %d times with events %+v, want 1 without events", replica.recorded.loads, replica.recorded.events)
		}
		suite.elector.resumeElection()
		suite.settle(time.Minute)
		if err := suite.onStream(); err != nil {
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
				suite := settledSuite(t, 2)
				replica := suite.anyListener()
				before, events := replica.State(), len(replica.recorded.events)
				replica.inbox.mu.Lock()
				epoch, chain := replica.inbox.epoch, replica.inbox.chain
				replica.inbox.mu.Unlock()
				next := message{
					cluster:  replica.cluster,
					epoch:    epoch,
					chain:    chain,
					previous: before.Revision,
					revision: before.Revision + 1,
					events:   []storage.Event{{Type: storage.Created, Key: testRoot + "new", Revision: before.Revision + 1}},
				}
				change(&next, replica.recorded.events[events-1])
				suite.bus.send(nil, replica.changeSubject, appendMessage(nil, &next))
				suite.awaitIdle()
				if after := replica.State(); after.Changes == before.Changes || after.Revision != before.Revision || len(replica.recorded.events) != events {
					t.Errorf("got state %+v after %+v, %d events after %d, want a change at the same revision without events",
						after, before, len(replica.recorded.events), events)
				}
			})
		})
	}
}
