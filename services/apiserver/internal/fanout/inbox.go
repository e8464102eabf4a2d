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
)

// frame is a message on its way to the replica.
type frame struct {
	epoch    int64
	previous int64
	// last is the newest change up to previous; the zero Mark when the publisher
	// does not know.
	last     storage.Mark
	revision int64
	withheld bool
	end      bool
	// local: handed over by this replica's own publisher.
	local  bool
	events []storage.Event
	bytes  int
}

// continues tells whether the message is of the history in which a place is: what
// both tell of is the same. When they cannot be compared, the store itself has to
// be asked.
func (f *frame) continues(at storage.Place) bool {
	last := at.Last
	switch {
	case last.Revision == 0: // just loaded, of an empty store
		return true
	case last.Revision > f.previous: // it is among what the message tells, if that is all
		return slices.ContainsFunc(f.events, func(e storage.Event) bool {
			return e.Revision == last.Revision && storage.MarkOf(&e).Same(last)
		})
	case f.last.Revision > last.Revision: // a change that was not seen, unless it was loaded
		return !at.Quiet
	}
	return f.last.Same(last)
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
	// epoch is the highest heard, revision the highest heard in it, present when
	// something of it was heard last. When nothing is for longer than silence, an
	// older one is heard: a store that went back elects with lower epochs.
	epoch    int64
	revision int64
	present  time.Time
	silence  time.Duration
	// local tells where the last message came from.
	local bool
	// heard is when the last message arrived; zero when the stream is known to
	// be broken or nothing was heard.
	heard time.Time
	// asked is when the oldest request without an answer was made.
	asked time.Time
	alarm reason
}

func newInbox(silence time.Duration) *inbox {
	return &inbox{ready: make(chan struct{}, 1), silence: silence}
}

func (in *inbox) wake() {
	select {
	case in.ready <- struct{}{}:
	default:
	}
}

// push takes a message and never blocks; false means that it is of an older
// epoch than one heard before.
func (in *inbox) push(f frame) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	if f.epoch < in.epoch && time.Since(in.present) <= in.silence {
		return false
	}
	in.present = time.Now()
	if f.epoch != in.epoch {
		in.epoch, in.revision = f.epoch, f.revision
		if in.alarm == reasonEnd {
			in.alarm = noReason
		}
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

// stillAlive notes that a part of a message of an epoch arrived. It revives no
// stream that is known to be broken.
func (in *inbox) stillAlive(epoch int64) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if epoch >= in.epoch && !in.heard.IsZero() {
		in.heard = time.Now()
		in.present = in.heard
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
	case f.revision <= at.Revision:
	case f.previous > at.Revision:
		return f, reasonChain, true
	case f.withheld:
		return f, reasonWithheld, true
	case !f.continues(at):
		return f, reasonHistory, true
	}
	in.dropLocked()
	return f, noReason, true
}

// join tells whether a replica that has applied everything up to a revision can
// go on with the stream: it is alive, and either a waiting message continues
// there or, when none waits, it has reached the revision wanted.
func (in *inbox) join(applied, wanted int64, silence time.Duration) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	for in.head < len(in.queue) && in.queue[in.head].revision <= applied {
		in.dropLocked()
	}
	if in.heard.IsZero() || time.Since(in.heard) > silence {
		return false
	}
	if in.head < len(in.queue) {
		f := &in.queue[in.head]
		return !f.withheld && f.previous <= applied
	}
	return in.revision >= wanted
}

// begin starts keeping messages, and tells whether a replica at the revision
// applied can go on with the stream without having seen any.
func (in *inbox) begin(applied int64, silence time.Duration) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.keep = true
	in.alarm = noReason
	return !in.heard.IsZero() && time.Since(in.heard) <= silence && in.revision <= applied
}

// finish stops keeping messages and forgets those that wait.
func (in *inbox) finish() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.keep = false
	in.queue, in.head, in.bytes = nil, 0, 0
	in.asked = time.Time{}
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

// quiet marks the stream as not alive until something arrives.
func (in *inbox) quiet() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.heard, in.asked = time.Time{}, time.Time{}
}

// state returns the highest revision heard and whether the last message was
// handed over locally.
func (in *inbox) state() (revision int64, local bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.revision, in.local
}
