package fanout

import (
	"slices"
	"sync"
	"time"

	"binnacle/services/apiserver/internal/storage"
)

// Bounds of the messages that wait for a replica to apply them. The oldest are
// forgotten first, so that what waits is always the end of the stream.
const (
	inboxFrames = 1 << 14
	inboxBytes  = 64 << 20
	// frameBytes is counted for a message besides its changes.
	frameBytes = 128
	eventBytes = 128
)

// reason says why a replica reads from the store.
type reason string

const (
	noReason         reason = ""
	reasonStart      reason = "start"
	reasonChain      reason = "chain"
	reasonWithheld   reason = "withheld"
	reasonSilence    reason = "silence"
	reasonUnanswered reason = "unanswered"
	reasonLink       reason = "disconnected"
	reasonSlow       reason = "slow_consumer"
	reasonDamaged    reason = "damaged"
	reasonEnd        reason = "publisher_end"
	// reasonHistory: the message may be of another history than the replica's.
	reasonHistory reason = "history"
	// reasonPublisher: there is another publisher.
	reasonPublisher reason = "publisher"
)

// frame is a message on its way to the replica.
type frame struct {
	epoch    int64
	chain    int64
	previous int64
	// last is the newest change up to previous; the zero Mark when the publisher
	// does not know.
	last storage.Mark
	// loaded: there may have been deletions between last and previous.
	loaded   bool
	revision int64
	withheld bool
	end      bool
	// local: handed over by this replica's own publisher.
	local   bool
	events  []storage.Event
	answers []uint64
	bytes   int
}

// continues tells whether the message, which goes on beyond a place, is of the
// history of that: what both tell of is the same. When they cannot be compared, the
// store itself has to be asked.
func (f *frame) continues(at storage.Place) bool {
	switch {
	case at.Last.Revision == 0: // just loaded, of an empty store
		return true
	case at.Last.Revision > f.previous:
	case f.last.Revision == 0:
		return false
	case f.loaded:
		return f.last.Same(at.Last)
	}
	return !f.contradicts(at)
}

// contradicts tells whether the message is of another history than a place that is
// not before it.
func (f *frame) contradicts(at storage.Place) bool {
	last := at.Last
	switch {
	case last.Revision == 0 || last.Revision > f.revision:
		return false
	case last.Revision > f.previous: // it is among what the message tells, if that is all
		return !f.withheld && !slices.ContainsFunc(f.events, func(e storage.Event) bool {
			return e.Revision == last.Revision && storage.MarkOf(&e).Same(last)
		})
	case f.last.Revision == 0 || f.loaded && f.last.Revision < last.Revision: // the publisher does not know
		return false
	case f.last.Revision > last.Revision: // a change that was not seen, unless it was loaded
		return at.Still(f.last.Revision)
	}
	return !f.last.Same(last)
}

// inbox holds the messages that arrived and what is known of the stream.
type inbox struct {
	// ready wakes the follower.
	ready chan struct{}

	mu sync.Mutex // guards the rest; a leaf: nothing is locked under it
	// keep: a follower runs, so messages are kept.
	keep  bool
	queue []frame // from head on
	head  int
	bytes int
	// request is what a chain has to answer to be listened to; 0 while none may be
	// joined. chain is the one that did, 0 for none, epoch its publisher's and
	// revision the highest that it told of.
	request  uint64
	chain    int64
	epoch    int64
	revision int64
	// other is the highest epoch that was heard of beside the chain's, stranger the
	// last chain that was heard of before one was found, and met that it is new.
	other    int64
	stranger int64
	met      bool
	// local tells where the last message came from.
	local bool
	// heard is when the last message arrived; zero when the stream is known to
	// be broken or nothing was heard.
	heard time.Time
	// asked is when the oldest request without an answer was made.
	asked time.Time
	alarm reason
}

func newInbox() *inbox { return &inbox{ready: make(chan struct{}, 1)} }

func (in *inbox) wake() {
	select {
	case in.ready <- struct{}{}:
	default:
	}
}

// push takes a message and never blocks; false means that it is of a chain that is
// not listened to.
func (in *inbox) push(f frame) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	if f.chain != in.chain || in.chain == 0 {
		if !in.answeredLocked(&f) {
			in.noticeLocked(&f)
			return false
		}
		in.forgetLocked()
		in.chain, in.epoch, in.revision = f.chain, f.epoch, f.revision
		in.alarm = noReason
	}
	in.revision = max(in.revision, f.revision)
	in.local = f.local
	in.asked = time.Time{}
	if f.end {
		in.heard = time.Time{}
		in.alarm = reasonEnd
		in.wake()
		return true
	}
	in.heard = time.Now()
	if !in.keep {
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
	in.wake()
	return true
}

// answeredLocked tells whether the chain of a message is to be listened to from now
// on: its publisher has looked at the store since that was wanted.
func (in *inbox) answeredLocked(f *frame) bool {
	return in.keep && in.request != 0 && slices.Contains(f.answers, in.request) && (in.chain == 0 || f.epoch > in.epoch)
}

// noticeLocked notes that there is a chain that is not listened to.
func (in *inbox) noticeLocked(f *frame) {
	switch {
	case f.end:
	case in.chain == 0:
		if in.stranger != f.chain {
			in.stranger, in.met = f.chain, true
			in.wake()
		}
	case f.epoch > max(in.epoch, in.other) && in.alarm == noReason:
		in.other = f.epoch
		in.alarm = reasonPublisher
		in.wake()
	}
}

// seek ends listening. A chain that answers the request is listened to again.
func (in *inbox) seek(request uint64) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.forgetLocked()
	in.request, in.chain = request, 0
	in.stranger, in.met = 0, false
	in.heard, in.asked = time.Time{}, time.Time{}
	in.alarm = noReason
}

// sought tells whether no chain has answered that is alive, and whether one was heard
// of that may not have been asked.
func (in *inbox) sought(silence time.Duration) (still, met bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.heard.IsZero() || time.Since(in.heard) > silence {
		in.chain = 0
	}
	met, in.met = in.met, false
	return in.chain == 0, met
}

// forgetLocked forgets the messages that wait.
func (in *inbox) forgetLocked() { in.queue, in.head, in.bytes = nil, 0, 0 }

// stillAlive notes that a part of a message of a chain arrived. It revives no
// stream that is known to be broken.
func (in *inbox) stillAlive(chain int64) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if chain == in.chain && !in.heard.IsZero() {
		in.heard = time.Now()
	}
}

// dropLocked forgets the oldest message.
func (in *inbox) dropLocked() {
	in.bytes -= in.queue[in.head].bytes
	in.queue[in.head] = frame{}
	in.head++
	switch {
	case in.head == len(in.queue):
		in.queue, in.head = in.queue[:0], 0
	case in.head >= 1024 && in.head*2 >= len(in.queue):
		n := copy(in.queue, in.queue[in.head:])
		clear(in.queue[n:])
		in.queue, in.head = in.queue[:n], 0
	}
}

// next removes the oldest message and returns it if it continues at a place or is
// passed by it. One that does not (see gap) stays, and is returned with it.
func (in *inbox) next(at storage.Place) (f frame, gap reason, ok bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.head == len(in.queue) {
		return frame{}, noReason, false
	}
	f = in.queue[in.head]
	switch {
	case f.previous > at.Revision:
		return f, reasonChain, true
	case f.contradicts(at):
		return f, reasonHistory, true
	case f.revision <= at.Revision:
	case f.withheld:
		return f, reasonWithheld, true
	case !f.continues(at):
		return f, reasonHistory, true
	}
	in.dropLocked()
	return f, noReason, true
}

// join tells whether a replica that has come to a place can go on with the stream:
// it is alive, and either a waiting message continues there or, when none waits, it
// has reached the revision wanted.
func (in *inbox) join(at storage.Place, wanted int64, silence time.Duration) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	contrary := false
	for in.head < len(in.queue) && in.queue[in.head].revision <= at.Revision {
		contrary = in.queue[in.head].contradicts(at)
		in.dropLocked()
	}
	if contrary {
		in.chain = 0 // it has to look again
	}
	if in.chain == 0 || in.heard.IsZero() || time.Since(in.heard) > silence {
		return false
	}
	if in.head < len(in.queue) {
		f := &in.queue[in.head]
		if f.withheld || f.previous > at.Revision || !f.continues(at) {
			return false
		}
	} else if in.revision < wanted {
		return false
	}
	// Who answers later has looked at the store before this.
	in.request = 0
	return true
}

// begin starts keeping messages, finish ends that.
func (in *inbox) begin() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.keep = true
}

func (in *inbox) finish() {
	in.seek(0)
	in.mu.Lock()
	defer in.mu.Unlock()
	in.keep = false
}

// broken notes that messages from the network were lost or will be. The stream
// is alive again with the next one that arrives. A local publisher goes on.
func (in *inbox) broken(r reason) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.local {
		return
	}
	in.heard = time.Time{}
	in.alarm = r
	in.wake()
}

// expect notes that a request for a heartbeat was made.
func (in *inbox) expect() {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.asked.IsZero() {
		in.asked = time.Now()
	}
}

// takeAlarm returns and clears what broken noted.
func (in *inbox) takeAlarm() reason {
	in.mu.Lock()
	defer in.mu.Unlock()
	r := in.alarm
	in.alarm = noReason
	return r
}

// overdue tells which sign of life is missing, noReason if none.
func (in *inbox) overdue(silence, answer time.Duration) reason {
	in.mu.Lock()
	defer in.mu.Unlock()
	switch {
	case in.heard.IsZero() || time.Since(in.heard) > silence:
		return reasonSilence
	case !in.asked.IsZero() && time.Since(in.asked) > answer:
		return reasonUnanswered
	}
	return noReason
}

// state returns the highest revision heard and whether the last message was
// handed over locally.
func (in *inbox) state() (revision int64, local bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.revision, in.local
}
