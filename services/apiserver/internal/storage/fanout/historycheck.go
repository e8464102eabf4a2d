package fanout

import (
	"context"
	"slices"
	"time"

	"binnacle/services/apiserver/internal/storage"
)

// # Histories
//
// A store that was restored from a backup has another history, in which revisions repeat. A replica
// must not apply changes of one history after those of the other, although a publisher may not have
// noticed the restore yet and messages may be late. Therefore:
//
//   - A chain has a name. A replica listens to one chain at a time.
//   - A replica that has read from the store, as each does when it starts to follow, requests a
//     check of the store. The publisher reopens its store watch at the position of its chain,
//     which fails if the store has another history (storage.Interface, Resume). It drops the
//     pending batches of the earlier watch. The first batch of the new watch is the proof, and
//     the publisher replies. The replica listens to the chain from that reply on, not before:
//     all later messages belong to the history that the replica has read, or to a later one.
//   - A publisher whose watch finds the store replaced resigns. A publisher that finds its next
//     changes compacted starts a chain with another name.
//   - A message states the newest change up to its previous revision. A replica that has seen a
//     different one does not apply the message and reads from the store. If the store has another
//     history than the replica, the replica reloads (storage.Position).
//   - A chain of a later epoch than the current one makes the replica read from the store and
//     request a check, once. Other chains are ignored.

// extendsHistory reports whether the message certainly belongs to the history of a position: both
// agree on the changes that they share. The message must end after the position.
func (m *message) extendsHistory(position storage.Position) bool {
	last := position.Last.Revision
	loadedFromEmptyStore := last == 0
	if loadedFromEmptyStore {
		return true
	}
	if last <= m.previous {
		if m.last.Revision == 0 {
			return false // nothing to compare with
		}
		if m.loaded {
			return m.last.Equal(position.Last)
		}
	}
	return !m.conflictsWith(position)
}

// conflictsWith reports whether the message certainly belongs to another history than a position.
// The message must not begin after the position.
func (m *message) conflictsWith(position storage.Position) bool {
	last := position.Last
	switch {
	case last.Revision == 0 || last.Revision > m.revision: // nothing to compare
		return false
	case last.Revision > m.previous: // the message must contain the change, unless it was withheld
		return !m.withheld && !slices.ContainsFunc(m.events, func(e storage.Event) bool {
			return e.Revision == last.Revision && storage.ChangeIDOf(&e).Equal(last)
		})
	case m.last.Revision == 0: // the publisher does not know its last change
		return false
	case m.loaded && m.last.Revision < last.Revision: // the publisher may have missed a deletion
		return false
	case m.last.Revision > last.Revision: // the replica lacks a change, unless it may have missed a deletion
		return position.QuietAt(m.last.Revision)
	}
	return !m.last.Equal(last)
}

// queueJoinRequest queues a replica's request for a check of the store. It is safe for concurrent use.
func (p *publisher) queueJoinRequest(request uint64) {
	p.mu.Lock()
	if !slices.Contains(p.pending, request) {
		p.pending = append(p.pending, request)
	}
	p.mu.Unlock()
	select {
	case p.checks <- struct{}{}:
	default:
	}
}

// hasPending reports whether requests for a check wait for the next feed.
func (p *publisher) hasPending() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.pending) > 0
}

// openFeed opens a store watch at the position of the chain. Its first batch proves the history, so
// it answers the requests received so far. The returned function stops the feed and waits for it.
func (p *publisher) openFeed(ctx context.Context) (_ *feed, stop func()) {
	p.mu.Lock()
	p.answering = append(p.answering, p.pending...)
	p.pending = nil
	p.mu.Unlock()

	opened := newFeed(p.fanout.store, p.fanout.root, p.fanout.heartbeat/4, p.fanout.log)
	opened.progressRequests = p.progressRequests
	p.requestProgress()
	position := p.chained
	position.Revision = max(position.Revision, p.progressed)
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		opened.run(ctx, position)
	}()
	return opened, func() {
		cancel()
		<-done
	}
}

// requestProgress requests progress of the running feed, or of the next one.
func (p *publisher) requestProgress() {
	select {
	case p.progressRequests <- struct{}{}:
	default:
	}
}

// answerChecks confirms to the requesters that the store still has the history of the chain.
func (p *publisher) answerChecks() {
	for requests := range slices.Chunk(p.answering, maxAnswers) {
		m := p.newMessage(p.progressed)
		m.answers = requests
		p.publishMessage(m)
	}
	p.answering = nil
}

const (
	// announceHeartbeats is the interval, in heartbeats, at which a replica announces itself by
	// requesting a heartbeat.
	announceHeartbeats = 10
	// subscriberHeartbeats is the number of heartbeats without an announcement after which a
	// publisher stops encoding changes.
	subscriberHeartbeats = 3 * announceHeartbeats
)

// subscriberTracker tracks whether other replicas listen.
type subscriberTracker struct {
	alone       bool      // no other process can reach the server
	lastRequest timestamp // when another replica last sent a request
}

// recordRequest records that another replica listens, or may listen.
func (t *subscriberTracker) recordRequest() { t.lastRequest.set() }

// hasSubscribers reports whether another replica has sent a request within a duration.
func (t *subscriberTracker) hasSubscribers(within time.Duration) bool {
	return !t.alone && t.lastRequest.age() <= within
}
