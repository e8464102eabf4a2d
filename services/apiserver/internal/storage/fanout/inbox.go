package fanout

import (
	"slices"
	"sync"
	"time"

	"binnacle/services/apiserver/internal/storage"
)

// Bounds of the messages that wait to be applied. The oldest are dropped first, so the waiting
// messages are always the end of the stream.
const (
	maxInboxMessages = 1 << 14
	maxInboxBytes    = 64 << 20
	// messageOverhead is the size counted for a message in addition to its changes, and eventOverhead that
	// for a change in addition to its key and value.
	messageOverhead = 128
	eventOverhead   = 128
)

// gapReason is the reason why a replica leaves the stream and reads from the store.
type gapReason string

const (
	noReason         gapReason = ""
	reasonStart      gapReason = "start"         // the replica has just started to follow
	reasonChain      gapReason = "chain"         // the next message begins after the replica's position
	reasonWithheld   gapReason = "withheld"      // the changes of a message were too large to be sent
	reasonSilence    gapReason = "silence"       // no message arrived for too long
	reasonUnanswered gapReason = "unanswered"    // a request for a heartbeat was not answered
	reasonLink       gapReason = "disconnected"  // the connection to NATS was lost
	reasonSlow       gapReason = "slow_consumer" // the NATS client dropped messages
	reasonDamaged    gapReason = "damaged"       // a message could not be decoded
	reasonEnd        gapReason = "publisher_end" // the publisher resigned
	reasonHistory    gapReason = "history"       // a message may belong to another history than the replica
	reasonPublisher  gapReason = "publisher"     // another publisher appeared
)

// inbox holds the received messages that wait to be applied, and the state of the stream. It is
// safe for concurrent use.
type inbox struct {
	// ready wakes the follower.
	ready chan struct{}

	mu sync.Mutex // leaf lock, guards the fields below
	// following means that a follower runs. Without one, messages are not queued.
	following bool
	queue     []message // the waiting messages are queue[head:]
	head      int
	bytes     int // of the waiting messages

	// joinRequest is the request for a check of the store that a chain must answer before the replica
	// listens to it. It is 0 while no chain may be joined.
	joinRequest uint64
	// chain is the chain that answered and that the replica listens to, or 0.
	chain    int64
	epoch    int64 // of the publisher of chain
	revision int64 // highest revision published in chain

	// otherEpoch is the highest epoch of messages of other chains.
	otherEpoch int64
	// candidate is the last chain that was received while chain is 0. candidateIsNew means that
	// joinAnswerMissing has not reported it yet.
	candidate      int64
	candidateIsNew bool

	// local means that the last message came from this replica's own publisher.
	local bool
	// lastMessage is when the last message arrived. It is zero if the stream is known to be broken
	// or nothing was received.
	lastMessage time.Time
	// requested is when the oldest unanswered request for a heartbeat was made.
	requested time.Time
	// loss is the reason to leave the stream that takeLoss returns next.
	loss gapReason
}

func newInbox() *inbox { return &inbox{ready: make(chan struct{}, 1)} }

// wakeFollower makes the follower check the inbox. It never blocks.
func (in *inbox) wakeFollower() {
	select {
	case in.ready <- struct{}{}:
	default:
	}
}

// push adds a message and never blocks. It returns false if the replica does not listen to the
// message's chain.
func (in *inbox) push(m message) bool {
	in.mu.Lock()
	defer in.mu.Unlock()

	// 1. Ignore other chains, except one that answers the request.
	if m.chain != in.chain || in.chain == 0 {
		if !in.answersLocked(&m) {
			in.recordOtherChainLocked(&m)
			return false
		}
		in.dropAllLocked()
		in.chain = m.chain
		in.epoch = m.epoch
		in.revision = m.revision
		in.loss = noReason
	}

	// 2. Update the state of the stream.
	in.revision = max(in.revision, m.revision)
	in.local = m.local
	in.requested = time.Time{}
	if m.end {
		in.lastMessage = time.Time{}
		in.loss = reasonEnd
		in.wakeFollower()
		return true
	}
	in.lastMessage = time.Now()
	if !in.following {
		return true
	}

	// 3. Queue the message.
	m.bytes = messageOverhead
	for i := range m.events {
		e := &m.events[i]
		m.bytes += eventOverhead + len(e.Key) + len(e.Value)
	}
	in.queue = append(in.queue, m)
	in.bytes += m.bytes
	for in.bytes > maxInboxBytes || len(in.queue)-in.head > maxInboxMessages {
		in.dropOldestLocked()
	}
	in.wakeFollower()
	return true
}

// answersLocked reports whether the replica listens to the chain of a message from now on: its
// publisher has checked the store since the request, and is newer than that of the current chain.
func (in *inbox) answersLocked(m *message) bool {
	if !in.following || in.joinRequest == 0 || !slices.Contains(m.answers, in.joinRequest) {
		return false
	}
	return in.chain == 0 || m.epoch > in.epoch
}

// recordOtherChainLocked records a message of a chain that the replica does not listen to.
func (in *inbox) recordOtherChainLocked(m *message) {
	switch {
	case m.end:
	case in.chain == 0:
		if in.candidate != m.chain {
			in.candidate = m.chain
			in.candidateIsNew = true
			in.wakeFollower()
		}
	case m.epoch > max(in.epoch, in.otherEpoch) && in.loss == noReason:
		in.otherEpoch = m.epoch
		in.loss = reasonPublisher
		in.wakeFollower()
	}
}

// awaitJoinAnswer drops the waiting messages and stops listening until a chain answers the request. A
// request of 0 waits for none.
func (in *inbox) awaitJoinAnswer(joinRequest uint64) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.dropAllLocked()
	in.joinRequest = joinRequest
	in.chain = 0
	in.candidate = 0
	in.candidateIsNew = false
	in.lastMessage = time.Time{}
	in.requested = time.Time{}
	in.loss = noReason
}

// joinAnswerMissing reports whether no live chain has answered yet. isNew means that another chain has
// appeared since the last call; its publisher may not have received the request. A chain that has been
// silent for longer than maxSilence is forgotten.
func (in *inbox) joinAnswerMissing(maxSilence time.Duration) (missing, isNew bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.lastMessage.IsZero() || time.Since(in.lastMessage) > maxSilence {
		in.chain = 0
	}
	isNew = in.candidateIsNew
	in.candidateIsNew = false
	return in.chain == 0, isNew
}

// dropAllLocked drops the waiting messages.
func (in *inbox) dropAllLocked() { in.queue, in.head, in.bytes = nil, 0, 0 }

// recordPart records that a part of a message of a chain arrived. It does not revive a stream that
// is known to be broken.
func (in *inbox) recordPart(chain int64) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if chain == in.chain && !in.lastMessage.IsZero() {
		in.lastMessage = time.Now()
	}
}

// dropOldestLocked drops the oldest waiting message.
func (in *inbox) dropOldestLocked() {
	in.bytes -= in.queue[in.head].bytes
	in.queue[in.head] = message{}
	in.head++
	switch {
	case in.head == len(in.queue):
		in.queue = in.queue[:0]
		in.head = 0
	case in.head >= 1024 && in.head*2 >= len(in.queue): // move the rest to the front, rarely
		n := copy(in.queue, in.queue[in.head:])
		clear(in.queue[n:])
		in.queue = in.queue[:n]
		in.head = 0
	}
}

// takeNext removes and returns the oldest message if it continues at a position or ends before it.
// Otherwise the message stays and takeNext returns the reason to leave the stream. ok is false if no
// message waits.
func (in *inbox) takeNext(position storage.Position) (next message, gap gapReason, ok bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.head == len(in.queue) {
		return message{}, noReason, false
	}
	next = in.queue[in.head]
	switch {
	case next.previous > position.Revision:
		return next, reasonChain, true
	case next.conflictsWith(position):
		return next, reasonHistory, true
	case next.revision <= position.Revision:
	case next.withheld:
		return next, reasonWithheld, true
	case !next.extendsHistory(position):
		return next, reasonHistory, true
	}
	in.dropOldestLocked()
	return next, noReason, true
}

// canContinue reports whether a replica at a position can continue with the stream: the stream is
// alive, and either a waiting message continues there or, if none waits, the stream has reached the
// desired revision.
func (in *inbox) canContinue(position storage.Position, desired int64, maxSilence time.Duration) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	// 1. Drop the messages that end before the position. The last of them decides whether the chain
	// has the same history.
	conflicting := false
	for in.head < len(in.queue) && in.queue[in.head].revision <= position.Revision {
		conflicting = in.queue[in.head].conflictsWith(position)
		in.dropOldestLocked()
	}
	if conflicting {
		in.chain = 0 // the publisher must check the store again
	}

	// 2. Check that the stream is alive and continues at the position.
	if in.chain == 0 || in.lastMessage.IsZero() || time.Since(in.lastMessage) > maxSilence {
		return false
	}
	if in.head < len(in.queue) {
		next := &in.queue[in.head]
		if next.withheld || next.previous > position.Revision || !next.extendsHistory(position) {
			return false
		}
	} else if in.revision < desired {
		return false
	}

	// 3. Ignore later answers. They come from earlier checks of the store.
	in.joinRequest = 0
	return true
}

// startFollowing makes push queue messages.
func (in *inbox) startFollowing() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.following = true
}

// stopFollowing drops the waiting messages and all later ones.
func (in *inbox) stopFollowing() {
	in.awaitJoinAnswer(0)
	in.mu.Lock()
	defer in.mu.Unlock()
	in.following = false
}

// markLost records that messages from the network were lost or will be. The stream counts as broken
// until the next message arrives. It does nothing if this replica's own publisher is followed.
func (in *inbox) markLost(reason gapReason) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.local {
		return
	}
	in.lastMessage = time.Time{}
	in.loss = reason
	in.wakeFollower()
}

// expectHeartbeat records that a heartbeat was requested.
func (in *inbox) expectHeartbeat() {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.requested.IsZero() {
		in.requested = time.Now()
	}
}

// takeLoss returns and clears the recorded reason to leave the stream, or noReason.
func (in *inbox) takeLoss() gapReason {
	in.mu.Lock()
	defer in.mu.Unlock()
	reason := in.loss
	in.loss = noReason
	return reason
}

// clearLoss clears the recorded reason to leave the stream.
func (in *inbox) clearLoss() { in.takeLoss() }

// overdueReason returns reasonSilence if no message has arrived for longer than maxSilence,
// reasonUnanswered if a requested heartbeat is missing for longer than maxAnswer, or noReason.
func (in *inbox) overdueReason(maxSilence, maxAnswer time.Duration) gapReason {
	in.mu.Lock()
	defer in.mu.Unlock()
	switch {
	case in.lastMessage.IsZero() || time.Since(in.lastMessage) > maxSilence:
		return reasonSilence
	case !in.requested.IsZero() && time.Since(in.requested) > maxAnswer:
		return reasonUnanswered
	}
	return noReason
}

// newestRevision returns the highest revision received, and whether the last message came from this
// replica's own publisher.
func (in *inbox) newestRevision() (revision int64, local bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.revision, in.local
}
