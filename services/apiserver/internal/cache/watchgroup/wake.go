package watchgroup

import (
	"sync"
	"sync/atomic"
)

// Parking is a watcher's registration with a Wake: it holds the callback that a change invokes. It
// must not be copied.
type Parking struct {
	Closed atomic.Bool // set by the watcher when it ends
	parked atomic.Bool // resume must be called
	resume func()      // set while parked
	index  int         // position in the list of the wake, guarded by that wake
}

// Park registers resume to be called once, by wk's change or by Unpark. It returns false if the change
// has happened, or if nudge already has a value.
func (p *Parking) Park(wk *Wake, resume func(), nudge <-chan struct{}) bool {
	p.resume = resume
	p.parked.Store(true)
	if wk.park(p) && len(nudge) == 0 {
		return true
	}
	return !p.parked.CompareAndSwap(true, false) // true if another goroutine has already unparked it
}

// Unpark calls resume if the watcher is parked.
func (p *Parking) Unpark() {
	if p.parked.CompareAndSwap(true, false) {
		p.resume()
	}
}

// Wake is a one-shot notification shared by the watchers of a group.
type Wake struct {
	woken chan struct{} // closed by the first change
	Seq   uint64        // the record of that change; valid once taken from the group

	mu       sync.Mutex // leaf lock
	happened bool       // the change has happened
	parked   []*Parking // resumed by the change
}

// park registers a watcher to be resumed by the change. It returns false if the change has happened
// already, or if the watcher was closed.
func (wk *Wake) park(p *Parking) bool {
	wk.mu.Lock()
	defer wk.mu.Unlock()
	if wk.happened || p.Closed.Load() {
		return false
	}
	if !wk.isParked(p) { // still registered from before a nudge
		p.index = len(wk.parked)
		wk.parked = append(wk.parked, p)
	}
	return true
}

// isParked reports whether the watcher is parked here, or was when it was nudged.
func (wk *Wake) isParked(p *Parking) bool {
	return p.index < len(wk.parked) && wk.parked[p.index] == p
}

// Unregister removes a closed watcher.
func (wk *Wake) Unregister(p *Parking) {
	wk.mu.Lock()
	defer wk.mu.Unlock()
	if !wk.isParked(p) {
		return
	}
	last := len(wk.parked) - 1
	wk.parked[p.index] = wk.parked[last]
	wk.parked[p.index].index = p.index
	wk.parked[last] = nil
	wk.parked = wk.parked[:last]
}

// asyncWakeThreshold is the number of watchers above which a separate goroutine resumes them,
// instead of the one that applies changes.
const asyncWakeThreshold = 256

// wakeAll wakes all watchers that wait for the change.
func (wk *Wake) wakeAll() {
	wk.mu.Lock()
	parked := wk.parked
	wk.happened = true
	wk.parked = nil
	close(wk.woken) // closed after the list is taken, so a watcher that parks again is not resumed twice
	wk.mu.Unlock()
	if len(parked) > asyncWakeThreshold {
		go resumeAll(parked)
		return
	}
	resumeAll(parked)
}

// resumeAll calls the resume functions of parked watchers.
func resumeAll(parked []*Parking) {
	for _, p := range parked {
		p.Unpark()
	}
}

// Done returns a channel that is closed by the first change.
func (wk *Wake) Done() <-chan struct{} { return wk.woken }

// WakeAll wakes the watchers of all wakes. The caller must not hold any lock that they acquire.
func WakeAll(wakes []*Wake) {
	for _, wk := range wakes {
		wk.wakeAll()
	}
}
