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
	inboxFrames = 1 << 14
	inboxBytes  = 64 << 20
	// frameBytes is the size counted for a message without its changes.
	frameBytes = 128
	eventBytes = 128
)

// gapReason is why a replica reads from the store.
type gapReason string

const (
	noReason         gapReason = ""
	reasonStart      gapReason = "start"
	reasonChain      gapReason = "chain"
	reasonWithheld   gapReason = "withheld"
	reasonSilence    gapReason = "silence"
	reasonUnanswered gapReason = "unanswered"
	reasonLink       gapReason = "disconnected"
	reasonSlow       gapReason = "slow_consumer"
	reasonDamaged    gapReason = "damaged"
	reasonEnd        gapReason = "publisher_end"
	// reasonHistory: the message may belong to another history than the replica.
	reasonHistory gapReason = "history"
	// reasonPublisher: there is another publisher.
	reasonPublisher gapReason = "publisher"
)

// frame is a message on its way to the replica.
type frame struct {
	epoch    int64
	chain    int64
	previous int64
	// last is the newest change up to previous. It is the zero ChangeID if the publisher does not
	// know it.
	last storage.ChangeID
	// loaded: there may have been deletions between last and previous.
	loaded   bool
	revision int64
	withheld bool
	end      bool
	// local: passed directly by this replica's own publisher.
	local   bool
	events  []storage.Event
	answers []uint64
	bytes   int
}

// extendsHistory reports whether the message, which extends beyond a position, belongs to the same
// history: both agree on the changes that they share. If they cannot be compared, the store must be
// asked.
func (f *frame) extendsHistory(at storage.Position) bool {
	switch {
	case at.Last.Revision == 0: // just loaded from an empty store
		return true
	case at.Last.Revision > f.previous:
	case f.last.Revision == 0:
		return false
	case f.loaded:
		return f.last.Equal(at.Last)
	}
	return !f.conflictsWith(at)
}

// conflictsWith reports whether the message belongs to another history than a position that is not
// before it.
func (f *frame) conflictsWith(at storage.Position) bool {
	last := at.Last
	switch {
	case last.Revision == 0 || last.Revision > f.revision:
		return false
	case last.Revision > f.previous: // the message must contain the change, if it is complete
		return !f.withheld && !slices.ContainsFunc(f.events, func(e storage.Event) bool {
			return e.Revision == last.Revision && storage.ChangeIDOf(&e).Equal(last)
		})
	case f.last.Revision == 0 || f.loaded && f.last.Revision < last.Revision: // the publisher does not know
		return false
	case f.last.Revision > last.Revision: // a change that the replica missed, unless it was loaded
		return at.QuietAt(f.last.Revision)
	}
	return !f.last.Equal(last)
}

// inbox holds the received messages that wait to be applied, and the state of the stream. It is
// safe for concurrent use.
type inbox struct {
	// ready wakes the follower.
	ready chan struct{}

	mu sync.Mutex // leaf lock, guards the fields below
	// following: a follower runs, so messages are kept.
	following bool
	queue     []frame // valid from head on
	head      int
	bytes     int
	// request is the request that a chain must answer to be listened to, or 0 while no chain may be
	// joined. chain is the chain that answered, or 0. epoch is the epoch of its publisher, and
	// revision the highest that it has published.
	request  uint64
	chain    int64
	epoch    int64
	revision int64
	// otherEpoch is the highest epoch received from other chains. candidate is the last
	// chain received before one was found, and isNew means that it is new.
	otherEpoch     int64
	candidate      int64
	candidateIsNew bool
	// local is whether the last message came from this replica's own publisher.
	local bool
	// lastMessage is when the last message arrived. It is zero if the stream is known to be broken
	// or nothing was received.
	lastMessage time.Time
	// requested is when the oldest unanswered request was made.
	requested time.Time
	alarm     gapReason
}

func newInbox() *inbox { return &inbox{ready: make(chan struct{}, 1)} }

// wakeFollower makes the follower look at the inbox. It never blocks.
func (in *inbox) wakeFollower() {
	select {
	case in.ready <- struct{}{}:
	default:
	}
}

// push adds a message and never blocks. It returns false if the message belongs to a chain that is
// not listened to.
func (in *inbox) push(f frame) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	if f.chain != in.chain || in.chain == 0 {
		if !in.answersLocked(&f) {
			in.noticeLocked(&f)
			return false
		}
		in.forgetLocked()
		in.chain = f.chain
		in.epoch = f.epoch
		in.revision = f.revision
		in.alarm = noReason
	}
	in.revision = max(in.revision, f.revision)
	in.local = f.local
	in.requested = time.Time{}
	if f.end {
		in.lastMessage = time.Time{}
		in.alarm = reasonEnd
		in.wakeFollower()
		return true
	}
	in.lastMessage = time.Now()
	if !in.following {
		return true
	}
	f.bytes = frameBytes
	for i := range f.events {
		e := &f.events[i]
		f.bytes += eventBytes + len(e.Key) + len(e.Value)
	}
	in.queue = append(in.queue, f)
	in.bytes += f.bytes
	for in.bytes > inboxBytes || len(in.queue)-in.head > inboxFrames {
		in.dropLocked()
	}
	in.wakeFollower()
	return true
}

// answersLocked reports whether the chain of a message is to be listened to from now on: its
// publisher has checked the store since the request.
func (in *inbox) answersLocked(f *frame) bool {
	return in.following && in.request != 0 && slices.Contains(f.answers, in.request) && (in.chain == 0 || f.epoch > in.epoch)
}

// noticeLocked records a chain that is not listened to.
func (in *inbox) noticeLocked(f *frame) {
	switch {
	case f.end:
	case in.chain == 0:
		if in.candidate != f.chain {
			in.candidate = f.chain
			in.candidateIsNew = true
			in.wakeFollower()
		}
	case f.epoch > max(in.epoch, in.otherEpoch) && in.alarm == noReason:
		in.otherEpoch = f.epoch
		in.alarm = reasonPublisher
		in.wakeFollower()
	}
}

// awaitChain stops listening until a chain answers the request.
func (in *inbox) awaitChain(request uint64) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.forgetLocked()
	in.request = request
	in.chain = 0
	in.candidate = 0
	in.candidateIsNew = false
	in.lastMessage = time.Time{}
	in.requested = time.Time{}
	in.alarm = noReason
}

// chainMissing reports whether no live chain has answered yet, and whether a chain was
// received that may not have received the request.
func (in *inbox) chainMissing(silence time.Duration) (missing, isNew bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.lastMessage.IsZero() || time.Since(in.lastMessage) > silence {
		in.chain = 0
	}
	isNew = in.candidateIsNew
	in.candidateIsNew = false
	return in.chain == 0, isNew
}

// forgetLocked drops the waiting messages.
func (in *inbox) forgetLocked() { in.queue, in.head, in.bytes = nil, 0, 0 }

// recordPart records that a part of a message of a chain arrived. It does not revive a stream that
// is known to be broken.
func (in *inbox) recordPart(chain int64) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if chain == in.chain && !in.lastMessage.IsZero() {
		in.lastMessage = time.Now()
	}
}

// dropLocked drops the oldest message.
func (in *inbox) dropLocked() {
	in.bytes -= in.queue[in.head].bytes
	in.queue[in.head] = frame{}
	in.head++
	switch {
	case in.head == len(in.queue):
		in.queue = in.queue[:0]
		in.head = 0
	case in.head >= 1024 && in.head*2 >= len(in.queue):
		n := copy(in.queue, in.queue[in.head:])
		clear(in.queue[n:])
		in.queue = in.queue[:n]
		in.head = 0
	}
}

// takeNext removes and returns the oldest message if it continues at a position or ends before it.
// Otherwise the message stays and is returned with the gap. ok is false if no message waits.
func (in *inbox) takeNext(at storage.Position) (f frame, gap gapReason, ok bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.head == len(in.queue) {
		return frame{}, noReason, false
	}
	f = in.queue[in.head]
	switch {
	case f.previous > at.Revision:
		return f, reasonChain, true
	case f.conflictsWith(at):
		return f, reasonHistory, true
	case f.revision <= at.Revision:
	case f.withheld:
		return f, reasonWithheld, true
	case !f.extendsHistory(at):
		return f, reasonHistory, true
	}
	in.dropLocked()
	return f, noReason, true
}

// canContinue reports whether a replica at a position can continue with the stream: the stream is
// alive, and either a waiting message continues there or, if none waits, the stream has reached the
// desired revision.
func (in *inbox) canContinue(at storage.Position, desired int64, silence time.Duration) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	contradicted := false
	for in.head < len(in.queue) && in.queue[in.head].revision <= at.Revision {
		contradicted = in.queue[in.head].conflictsWith(at)
		in.dropLocked()
	}
	if contradicted {
		in.chain = 0 // the publisher must check the store again
	}
	if in.chain == 0 || in.lastMessage.IsZero() || time.Since(in.lastMessage) > silence {
		return false
	}
	if in.head < len(in.queue) {
		f := &in.queue[in.head]
		if f.withheld || f.previous > at.Revision || !f.extendsHistory(at) {
			return false
		}
	} else if in.revision < desired {
		return false
	}
	// Later answers come from checks of the store before this one.
	in.request = 0
	return true
}

// startFollowing starts to keep messages.
func (in *inbox) startFollowing() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.following = true
}

// stopFollowing drops all messages from now on.
func (in *inbox) stopFollowing() {
	in.awaitChain(0)
	in.mu.Lock()
	defer in.mu.Unlock()
	in.following = false
}

// markLost records that messages from the network were lost or will be. The next message that
// arrives revives the stream. A local publisher is not affected.
func (in *inbox) markLost(r gapReason) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.local {
		return
	}
	in.lastMessage = time.Time{}
	in.alarm = r
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

// takeAlarm returns and clears the reason recorded by markLost.
func (in *inbox) takeAlarm() gapReason {
	in.mu.Lock()
	defer in.mu.Unlock()
	r := in.alarm
	in.alarm = noReason
	return r
}

// overdueSign returns which sign of life is missing, or noReason.
func (in *inbox) overdueSign(silence, answer time.Duration) gapReason {
	in.mu.Lock()
	defer in.mu.Unlock()
	switch {
	case in.lastMessage.IsZero() || time.Since(in.lastMessage) > silence:
		return reasonSilence
	case !in.requested.IsZero() && time.Since(in.requested) > answer:
		return reasonUnanswered
	}
	return noReason
}

// newest returns the highest revision received, and whether the last message came from this
// replica's own publisher.
func (in *inbox) newest() (revision int64, local bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.revision, in.local
}
