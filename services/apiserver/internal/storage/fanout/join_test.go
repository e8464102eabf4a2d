package fanout

import (
	"testing"
	"testing/synctest"
	"time"

	"binnacle/services/apiserver/internal/storage"
)

// settledSuite starts replicas and waits until all use the stream.
func settledSuite(t *testing.T, replicas int) *suite {
	t.Helper()
	s := newSuite(t, replicas, 4096)
	s.startAll()
	t.Cleanup(s.stopAll)
	s.store.write(1, 100)
	s.settle(time.Second)
	if err := s.onStream(); err != nil {
		t.Fatal(err)
	}
	return s
}

// awaitIdle waits until all goroutines are blocked, without advancing the clock.
func (s *suite) awaitIdle() { synctest.Wait() }

func (r *replica) wantRevision(t *testing.T, want int64) {
	t.Helper()
	if got := r.recorded.revision(); got != want {
		t.Errorf("%s: got revision %d, want %d", r.id, got, want)
	}
}

func (r *replica) wantSource(t *testing.T, want string) {
	t.Helper()
	if got := r.State().Source; got != want {
		t.Errorf("%s: got source %q, want %q", r.id, got, want)
	}
}

// TestProgressReachesRevisionsOutsideTheRoot checks that Progress also reports revisions at which
// nothing below the root changed, from the stream and from the store.
func TestProgressReachesRevisionsOutsideTheRoot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		suite := settledSuite(t, 3)
		for _, r := range suite.replicas {
			suite.store.writeOutsideRoot()
			if err := r.Progress(t.Context()); err != nil {
				t.Fatal(err)
			}
			suite.awaitIdle()
			r.wantRevision(t, suite.store.newest())
		}
		listener := suite.anyListener()
		listener.node.setConnected(false)
		suite.awaitIdle()
		suite.store.writeOutsideRoot()
		if err := listener.Progress(t.Context()); err != nil {
			t.Fatal(err)
		}
		suite.awaitIdle()
		listener.wantRevision(t, suite.store.newest())
	})
}

// TestHeartbeatsCarryProgress checks that replicas reach the newest revision by heartbeats alone.
func TestHeartbeatsCarryProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := settledSuite(t, 2)
		s.store.writeOutsideRoot()
		s.settle(3 * DefaultHeartbeat)
		for _, r := range s.replicas {
			r.wantRevision(t, s.store.newest())
		}
	})
}

// TestHangingPublisherIsDetected checks that a publisher that hangs without losing its term or
// connection is detected by its silence, or earlier by a replica that waits for an answer.
func TestHangingPublisherIsDetected(t *testing.T) {
	for name, requestProgress := range map[string]bool{"silence": false, "unanswered request": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := settledSuite(t, 2)
				replica := s.anyListener()
				replica.node.setFaults(faults{drop: 1 << 30})
				rev := s.store.write(1, 10)
				if requestProgress {
					if err := replica.Progress(t.Context()); err != nil {
						t.Fatal(err)
					}
					s.settle(DefaultHeartbeat)
				} else {
					s.settle(4 * DefaultHeartbeat)
				}
				replica.wantRevision(t, rev)
				replica.wantSource(t, sourceStore)
			})
		})
	}
}

// TestDamagedMessageIsReadFromStore checks that a replica reads the changes of a damaged message
// from the store and then returns to the stream.
func TestDamagedMessageIsReadFromStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := settledSuite(t, 2)
		listener := s.anyListener()
		listener.node.setFaults(faults{damage: 1})
		rev := s.store.write(1, 10)
		s.awaitIdle()
		listener.wantRevision(t, rev)
		s.settle(2 * DefaultHeartbeat)
		listener.wantSource(t, sourceNATS)
	})
}

// TestOlderEpochIsIgnored checks that messages of an earlier publisher have no effect.
func TestOlderEpochIsIgnored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		suite := settledSuite(t, 2)
		replica := suite.anyListener()
		before := replica.State()
		stale := message{
			cluster:  replica.cluster,
			epoch:    5,
			previous: before.Revision,
			revision: before.Revision + 1,
			events:   []storage.Event{{Type: storage.Created, Key: testRoot + "stale", Revision: before.Revision + 1}},
		}
		suite.bus.send(nil, replica.changeSubject, appendMessage(nil, &stale))
		end := message{cluster: replica.cluster, epoch: 5, previous: before.Revision, revision: before.Revision, end: true}
		suite.bus.send(nil, replica.changeSubject, appendMessage(nil, &end))
		suite.awaitIdle()
		if after := replica.State(); after.Revision != before.Revision || after.Changes != before.Changes {
			t.Errorf("got state %+v, want %+v", after, before)
		}
	})
}

// TestOtherClusterIsIgnored checks that messages of another cluster have no effect.
func TestOtherClusterIsIgnored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := settledSuite(t, 2)
		listener := s.anyListener()
		before := listener.State()
		other := message{cluster: "other", epoch: 1 << 40, previous: before.Revision, revision: before.Revision + 1}
		s.bus.send(nil, listener.changeSubject, appendMessage(nil, &other))
		s.awaitIdle()
		if after := listener.State(); after.Revision != before.Revision || after.Changes != before.Changes {
			t.Errorf("got state %+v, want %+v", after, before)
		}
	})
}

// TestEndedPublisherIsReplacedWithoutLoss checks that another replica publishes when the publisher ends, and that no
// change is lost.
func TestEndedPublisherIsReplacedWithoutLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := settledSuite(t, 3)
		ended := s.currentPublisher()
		listener := s.anyListener()
		ended.cancelRun()
		s.awaitIdle()
		rev := s.store.write(1, 10)
		s.awaitIdle()
		listener.wantRevision(t, rev)
		ended.wantRevision(t, rev)
		s.settle(5 * DefaultHeartbeat)
		if s.currentPublisher() == ended || s.currentPublisher() == nil {
			t.Error("after the publisher ended: got no other publisher, want one")
		}
		ended.wantSource(t, sourceStore)
	})
}

// TestNewReplicaJoinsStream checks that replicas that start behind catch up, join the stream, and
// close their store watches.
func TestNewReplicaJoinsStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		suite := settledSuite(t, 2)
		for range 50 {
			suite.store.write(1, 10)
		}
		suite.awaitIdle()
		watches := suite.store.runningWatches()

		behind := suite.addReplica(t, 7)
		behind.recorded.applied = 11
		behind.from = 11
		behind.startRun()
		suite.settle(2 * DefaultHeartbeat)
		behind.startFollow(suite.store)
		suite.awaitIdle()
		behind.wantRevision(t, suite.store.newest())

		current := suite.addReplica(t, 8)
		current.recorded.applied = suite.store.newest()
		current.from = suite.store.newest()
		current.startRun()
		suite.settle(2 * DefaultHeartbeat)
		current.startFollow(suite.store)
		suite.awaitIdle()
		current.wantSource(t, sourceNATS)
		if n := current.State().Changes; n != 2 { // all replicas begin with the store
			t.Errorf("current replica changed its source %d times, want 2", n)
		}

		suite.replicas = append(suite.replicas, behind, current)
		suite.settle(5 * DefaultHeartbeat)
		if err := suite.checkConverged(); err != nil {
			t.Error(err)
		}
		if got := suite.store.runningWatches(); got != watches {
			t.Errorf("got %d store watches, want %d", got, watches)
		}
	})
}

// TestReplicaWithFrequentLossesRejoinsRarely checks that a replica with frequent losses does not switch between
// stream and store all the time.
func TestReplicaWithFrequentLossesRejoinsRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		suite := settledSuite(t, 2)
		replica := suite.anyListener()
		before := replica.State().Changes
		const falls = 600
		for range falls {
			replica.node.setFaults(faults{drop: 1})
			suite.store.write(1, 10)
			suite.store.write(1, 10)
			suite.settle(DefaultHeartbeat / 2)
		}
		if n := replica.State().Changes - before; n < 4 || n > falls/10 {
			t.Errorf("got %d source changes in %d losses, want 4 to %d", n, falls, falls/10)
		}
		replica.node.setFaults(faults{})
		suite.settle(40 * DefaultHeartbeat)
		if err := suite.checkConverged(); err != nil {
			t.Error(err)
		}
		replica.wantSource(t, sourceNATS)
	})
}

// TestSlowReplicaReadsFromStore checks that a slow replica drops the oldest waiting messages and
// reads them from the store.
func TestSlowReplicaReadsFromStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		suite := settledSuite(t, 2)
		replica := suite.anyListener()
		replica.cancelFollow()
		suite.awaitIdle()
		gate := make(chan struct{})
		ctx := t.Context()
		replica.running.Go(func() {
			_ = replica.Follow(ctx, replica.recorded.currentPosition(), func(b storage.Batch) error {
				<-gate
				return replica.recorded.apply(b)
			})
		})
		replica.cancelFollow = func() {}
		const writes = maxInboxMessages + 1000
		for range writes {
			suite.store.write(1, 10)
			suite.awaitIdle()
		}
		replica.inbox.mu.Lock()
		waiting := len(replica.inbox.queue) - replica.inbox.head
		replica.inbox.mu.Unlock()
		if waiting > maxInboxMessages {
			t.Errorf("got %d waiting messages, want at most %d", waiting, maxInboxMessages)
		}
		close(gate)
		suite.settle(3 * DefaultHeartbeat)
		if err := suite.checkConverged(); err != nil {
			t.Error(err)
		}
	})
}

// TestSplitMessagesFormChainWithoutGaps checks that batches split into several messages, and messages split into
// parts, form one chain without gaps.
func TestSplitMessagesFormChainWithoutGaps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		suite := settledSuite(t, 2)

		// 1. Record the messages of the publisher. A message in parts counts once it is complete.
		tap := newBusNode(suite.bus)
		if _, err := tap.dial(linkEvents{onUp: func() {}, onDown: func(error) {}}); err != nil {
			t.Fatal(err)
		}
		defer tap.close()
		var received []*message
		var parts partAssembler
		partCount := 0 // number of received parts
		if err := tap.subscribe(suite.anyListener().changeSubject, func(b []byte) {
			m, err := decodeMessage(b)
			if err != nil {
				t.Error(err)
				return
			}
			if m.part != nil {
				partCount++
				whole, ok := parts.addPart(m)
				if !ok {
					return
				}
				if m, err = decodeMessage(whole); err != nil {
					t.Error(err)
					return
				}
			}
			if len(m.events) > 0 || m.withheld {
				received = append(received, m)
			}
		}); err != nil {
			t.Fatal(err)
		}

		// 2. Write more than fits into one message, while the store delivers nothing.
		suite.store.setStalled(true)
		first := suite.store.newest()
		for i := range 20 {
			suite.store.write(3, 100+400*(i%3))
		}
		suite.store.write(1, 6000)
		last := suite.store.write(1, 10)
		suite.store.setStalled(false)
		suite.awaitIdle()

		// 3. The messages follow each other without gaps, up to the last write.
		at := first
		for _, m := range received {
			if m.previous != at {
				t.Errorf("got message (%d, %d], want one that follows %d", m.previous, m.revision, at)
			}
			at = m.revision
		}
		if at != last || partCount < 2 || len(received) < 3 {
			t.Errorf("got %d messages up to %d, %d parts, want up to %d", len(received), at, partCount, last)
		}
	})
}
