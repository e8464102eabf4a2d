package fanout

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"binnacle/services/apiserver/internal/storage"
)

// electionName is the name of the publisher election.
const electionName = "fanout-publisher"

const (
	// batchBytes is the size up to which waiting changes share a message. This saves messages
	// under load, and keeps them well below common limits.
	batchBytes = 256 << 10
	// resignWait bounds how long a publisher tries to announce its end.
	resignWait = time.Second
)

// errDisconnected stops a publisher that has had no connection for long.
var errDisconnected = errors.New("no connection to NATS")

// publisher publishes changes during one term of leadership. historycheck.go has its methods for
// requests to join.
type publisher struct {
	fanout *Fanout
	epoch  int64
	// chain is the name of the published chain. A publisher whose next changes are compacted starts
	// a chain with another name.
	chain int64
	// chained is the position of the last message with changes, or the start of the chain.
	// progressed is the highest revision published.
	chained          storage.Position
	progressed       int64
	progressRequests chan struct{} // makes the running feed request progress from the store
	encoded          []byte
	// lastSent is when the last message was published.
	lastSent time.Time
	// answering holds the requests to join that are answered when the running feed delivers its
	// minimum batch.
	answering []uint64

	checks  chan struct{} // signals new requests in pending
	mu      sync.Mutex    // guards pending; leaf lock
	pending []uint64      // requests to join that arrived since the running feed was opened
}

// campaignRepeatedly campaigns for leadership repeatedly, until ctx ends.
func (f *Fanout) campaignRepeatedly(ctx context.Context) {
	delays := backoff{minimum: f.heartbeat, maximum: 30 * f.heartbeat}
	for f.link.awaitUp(ctx) {
		started := time.Now()
		err := f.runTerm(ctx)
		if ctx.Err() != nil {
			return
		}
		if time.Since(started) > delays.maximum {
			delays.reset()
		}
		delay := delays.nextDelay()
		f.log.Warn("publishing changes failed; retrying", "wait", delay, "error", err)
		if !sleep(ctx, delay) {
			return
		}
	}
}

// runTerm waits to be elected and publishes until the leadership or the connection is lost or ctx
// ends.
func (f *Fanout) runTerm(ctx context.Context) error {
	var lost <-chan struct{}
	if f.elector != nil {
		l, resign, err := f.elector.Campaign(ctx, electionName, f.id)
		if err != nil {
			return fmt.Errorf("campaign: %w", err)
		}
		defer resign()
		lost = l
	}
	// The revision after the election is the epoch. The end of a term takes a revision of its own, so
	// a later term has a later epoch. This holds only if the term did not end before the revision was
	// read, hence the check of lost.
	epoch, err := f.store.Revision(ctx)
	if err != nil {
		return fmt.Errorf("read the revision of the election: %w", err)
	}
	select {
	case <-lost:
		return errors.New("the election was lost at once")
	default:
	}
	p := &publisher{fanout: f, epoch: epoch, progressRequests: make(chan struct{}, 1), checks: make(chan struct{}, 1)}
	// Replicas may have sent their requests to an earlier publisher. Assume that there are some, so
	// that changes are published.
	f.audience.recordRequest()
	p.beginChain(f.chainStart(ctx, epoch))
	f.publisher.Store(p)
	f.metrics.publisher.Set(1)
	f.log.Info("publishing changes", "epoch", epoch, "after", p.chained.Revision)
	defer func() {
		f.publisher.Store(nil)
		f.metrics.publisher.Set(0)
		p.announceEnd()
	}()
	return p.run(ctx, lost)
}

// chainStart returns where a new chain starts. If this replica follows the stream, the chain starts
// at its position. Most other replicas have about the same position, so the stream continues for
// them. Otherwise, for example while this replica still catches up, the chain starts at newest.
func (f *Fanout) chainStart(ctx context.Context, newest int64) storage.Position {
	position := f.followerState.position.Load()
	onStream := f.followerState.following.Load() && f.followerState.joined.Load()
	if onStream && position != nil && position.Revision > 0 && position.Revision <= newest {
		return *position
	}
	return f.lastChange(ctx, newest)
}

const (
	// maxLookback and maxLookbackBytes bound how many revisions and bytes a new publisher reads to find
	// the last change before its chain. Without that change, replicas at the start of the chain must
	// ask the store.
	maxLookback, maxLookbackBytes = 64, 8 << 20
)

// lastChange returns the position of the newest revision, with the last change if it is near.
func (f *Fanout) lastChange(ctx context.Context, newest int64) storage.Position {
	position := storage.Position{Revision: newest}
	reader, ok := f.store.(storage.HistoryReader)
	if !ok {
		return position
	}
	for _, back := range []int64{1, maxLookback} {
		b, ok, err := reader.Changes(ctx, f.root, max(newest-back, 0), newest, maxLookbackBytes)
		if !ok || err != nil || b.Revision != newest { // replicas ask for unknown changes later
			return position
		}
		if len(b.Events) > 0 {
			return position.Advance(b)
		}
	}
	return position
}

// beginChain starts a chain and announces it.
func (p *publisher) beginChain(position storage.Position) {
	p.chain = rand.Int64()
	p.chained = position
	p.progressed = position.Revision
	p.publishMessage(p.newMessage(position.Revision))
}

// newMessage returns a message that continues the chain.
func (p *publisher) newMessage(revision int64) message {
	return message{previous: p.chained.Revision, last: p.chained.Last, loaded: !p.chained.Unchanged, revision: revision}
}

// run publishes chains one after the other, until the term ends. It starts another chain only when
// the store has compacted changes before they were published.
func (p *publisher) run(ctx context.Context, lost <-chan struct{}) error {
	for {
		err := p.publishChain(ctx, lost)
		if compacted := new(storage.CompactedError); !errors.As(err, &compacted) {
			return err
		}
		newest, err := p.fanout.store.Revision(ctx)
		if err != nil {
			return fmt.Errorf("read the revision after a compaction: %w", err)
		}
		p.beginChain(storage.Position{Revision: max(newest, p.progressed)})
	}
}

// publishChain publishes changes until the chain has a gap.
func (p *publisher) publishChain(ctx context.Context, lost <-chan struct{}) error {
	feed, stop := p.openFeed(ctx)
	defer func() { stop() }()
	tick := time.NewTicker(p.fanout.heartbeat / 2)
	defer tick.Stop()
	for {
		select {
		case b := <-feed.batches:
			p.answerChecks()
			p.handleBatch(p.appendWaiting(feed, b))
		case <-p.checks:
		case err := <-feed.failed:
			return err
		case <-tick.C:
			if down := p.fanout.link.downFor(); down > p.fanout.maxSilence() {
				return errDisconnected
			}
			// Without changes, a heartbeat is due: progress of the store becomes a batch without
			// events. As ticks are half a heartbeat apart, this happens on every other tick.
			if time.Since(p.lastSent) >= p.fanout.heartbeat*3/4 {
				p.requestProgress()
			}
		case <-lost:
			return errors.New("the election was lost")
		case <-ctx.Done():
			return ctx.Err()
		}
		// Answer pending requests by a new feed, unless the running one still has requests to answer.
		if len(p.answering) == 0 && p.hasPending() {
			stop()
			feed, stop = p.openFeed(ctx)
		}
	}
}

// appendWaiting adds batches that are already waiting, up to batchBytes, so that they share a message.
// It does not modify the events of batch.
func (p *publisher) appendWaiting(running *feed, batch storage.Batch) storage.Batch {
	if len(batch.Events) == 0 {
		return batch
	}
	size := bytesOf(batch.Events)
	copied := false
	for size < batchBytes {
		select {
		case waiting := <-running.batches:
			if !copied {
				batch.Events = append([]storage.Event(nil), batch.Events...)
				copied = true
			}
			size += bytesOf(waiting.Events)
			batch.Events = append(batch.Events, waiting.Events...)
			batch.Revision = max(batch.Revision, waiting.Revision)
		default:
			return batch
		}
	}
	return batch
}

// bytesOf returns the size of events as encoded.
func bytesOf(events []storage.Event) int {
	n := 0
	for i := range events {
		n += eventSize(&events[i])
	}
	return n
}

// handleBatch passes a batch to this replica as one message and publishes it for the other replicas,
// if necessary as several messages.
func (p *publisher) handleBatch(batch storage.Batch) {
	if batch.Revision < p.progressed || (len(batch.Events) > 0 && batch.Revision <= p.chained.Revision) {
		return // known already
	}
	m := p.newMessage(batch.Revision)
	m.events = batch.Events
	p.deliverLocally(m)
	p.progressed = batch.Revision
	if len(batch.Events) == 0 {
		// The chain does not count heartbeats, so a lost one is no gap.
		p.sendToPeers(m)
		return
	}
	p.sendEvents(batch)
}

// sendEvents publishes events in messages of whole revisions.
func (p *publisher) sendEvents(batch storage.Batch) {
	// 1. Determine the sizes of events in bytes: the maximum of a message that is sent whole, the
	// maximum of one that may be sent in parts, and the size up to which revisions share a message.
	payload := min(p.fanout.transport.maxPayload(), maxMessageBytes)
	maxWhole := payload - messageSize(p.fanout.cluster)
	maxSize := maxWhole
	if payload >= minPartPayload {
		maxSize = maxMessageBytes - messageSize(p.fanout.cluster)
	}
	desired := min(maxWhole, batchBytes)

	events := batch.Events
	for len(events) > 0 {
		// 2. Take at least one revision, and more as long as they fit.
		taken, size := 0, 0
		for taken < len(events) {
			count, bytes := revisionOf(events[taken:])
			if taken > 0 && (size+bytes > desired || taken+count > maxEvents) {
				break
			}
			taken += count
			size += bytes
		}

		// 3. Send them. Replicas read a revision that is too large from the store.
		m := p.newMessage(events[taken-1].Revision)
		m.events = events[:taken]
		if size > maxSize || taken > maxEvents {
			m.events = nil
			m.withheld = true
		}
		sent := events[:taken]
		events = events[taken:]
		if len(events) == 0 {
			m.revision = batch.Revision
		}
		p.sendToPeers(m)
		p.chained = p.chained.Advance(storage.Batch{Events: sent, Revision: m.revision})
	}
}

// revisionOf returns the number of the events of the first revision, and their size in bytes.
func revisionOf(events []storage.Event) (count, bytes int) {
	for count < len(events) && events[count].Revision == events[0].Revision {
		bytes += eventSize(&events[count])
		count++
	}
	return count, bytes
}

// publishMessage passes a message to this replica and publishes it.
func (p *publisher) publishMessage(m message) {
	p.deliverLocally(m)
	p.sendToPeers(m)
}

// deliverLocally passes a message to this replica itself.
func (p *publisher) deliverLocally(m message) {
	m.epoch, m.chain, m.withheld, m.local = p.epoch, p.chain, false, true
	p.fanout.inbox.push(m)
}

// sendToPeers publishes a message for the other replicas, unless none listens. If a message is not
// sent, replicas notice the gap by the next one.
func (p *publisher) sendToPeers(m message) {
	fanout := p.fanout
	if fanout.audience.alone {
		p.lastSent = time.Now()
		return
	}
	if len(m.events) > 0 && !fanout.audience.hasSubscribers(subscriberHeartbeats*fanout.heartbeat) {
		return
	}
	m.cluster = fanout.cluster
	m.epoch = p.epoch
	m.chain = p.chain
	p.encoded = appendMessage(p.encoded[:0], &m)
	p.lastSent = time.Now()
	var err error
	if limit := fanout.transport.maxPayload(); len(p.encoded) > limit && limit >= minPartPayload {
		err = p.sendParts(&m, p.encoded, limit-partSize(fanout.cluster))
	} else if err = fanout.transport.publish(fanout.changeSubject, p.encoded); err == nil {
		fanout.metrics.recordPublished(len(p.encoded))
	}
	if err != nil {
		fanout.metrics.publishErrors.Inc()
	}
	if cap(p.encoded) > 4*batchBytes {
		p.encoded = nil
	}
}

// announceEnd announces the end of the publisher, so that replicas do not wait for more messages.
func (p *publisher) announceEnd() {
	m := p.newMessage(p.progressed)
	m.end = true
	p.publishMessage(m)
	if p.fanout.link.downFor() == 0 {
		if err := p.fanout.transport.flush(resignWait); err != nil {
			p.fanout.log.Debug("the last message may not have been sent", "error", err)
		}
	}
}
