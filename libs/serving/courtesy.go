package serving

import (
	"io"
	"runtime"
	"sync/atomic"
	"time"
)

const (
	// courteous is after how many bytes of long answers the threads of others may go first.
	courteous = 64 << 10
	// remembered is for how many bytes of long answers a short one is.
	remembered = 256 << 20
)

// courtesy has long answers, and large requests that arrive, give way to short ones, not only
// among the goroutines but among the threads of the system: it lets a thread that works go on for milliseconds while others
// wait, and a short request has several such waits, of which one is for who takes it from the
// network. Giving way costs the long ones what they had in the processor's caches, so nobody
// does when all there was lately are long answers.
type courtesy struct {
	owed  atomic.Int64 // bytes
	since atomic.Int64 // bytes since somebody gave way
	last  atomic.Int64 // when that was, of the clock
	told  func()       // that there is much to do; may be nil
}

// short notes that a short answer was given.
func (c *courtesy) short() {
	if c.owed.Load() < remembered/2 { // what is written by all is dear
		c.owed.Store(remembered)
	}
}

// sent notes that a part of a long answer was given to the system, and gives way.
func (c *courtesy) sent(bytes int) {
	if c == nil || c.owed.Load() <= 0 {
		return
	}
	c.owed.Add(-int64(bytes))
	if c.since.Add(int64(bytes)) >= courteous {
		c.since.Store(0)
		c.part()
		giveWay()
	}
}

// received notes that so much came, large requests mostly, and gives way, also to those that the same
// scheduler's queue has: who reads goes on as long as there is something to be read.
func (c *courtesy) received(bytes int) {
	if c == nil || c.owed.Load() <= 0 {
		return
	}
	c.owed.Add(-int64(bytes))
	if c.since.Add(int64(bytes)) >= courteous {
		c.since.Store(0)
		c.part()
		runtime.Gosched()
		giveWay()
	}
}

// masses is how soon after each other parts of courteous bytes are so much that it is told.
const masses = 25 * time.Millisecond

// part tells that there is much to do, when a part comes soon after another.
func (c *courtesy) part() {
	now := time.Now().UnixNano()
	if now-c.last.Swap(now) < int64(masses) {
		c.tell()
	}
}

// tell tells that there is much to do.
func (c *courtesy) tell() {
	if c != nil && c.told != nil {
		c.told()
	}
}

// largeReceive is how many bytes come on a connection until they are counted.
const largeReceive = 4 << 10

// letIn has those go on whom the network has something for. A scheduler of Go asks the network when it
// has nobody else who can go on, and each 10 ms besides; who calls runtime.Gosched can go on.
func letIn() { time.Sleep(letInFor) }

const (
	// letInFor is long enough for that; the system makes some 80 µs of it.
	letInFor = 20 * time.Microsecond
	// paced is how much is read of what is large until others are let in, and eachRead what reading
	// costs besides, in bytes: a client may send each by itself.
	paced    = 16 << 10
	eachRead = 256
)

// pace is that of who reads something large.
type pace struct {
	io.Reader
	done int
}

// Read implements io.Reader.
func (p *pace) Read(b []byte) (int, error) {
	n, err := p.Reader.Read(b)
	if p.done += n + eachRead; p.done >= paced {
		p.done = 0
		letIn()
	}
	return n, err
}
