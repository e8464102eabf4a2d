package watchgroup

import "testing"

// TestClosedWatcherIsNotParked checks that a watcher that is nudged and closed while it is being
// parked does not stay on the list of parked watchers.
func TestClosedWatcherIsNotParked(t *testing.T) {
	var g Group
	wk := g.CurrentWake()
	p := &Parking{}
	p.resume = func() { // called by park before it lists the watcher
		p.Closed.Store(true)
		wk.Unregister(p)
	}
	p.parked.Store(true)
	p.Unpark()
	if wk.park(p) || len(wk.parked) > 0 {
		t.Error("closed watcher: got it parked, want it removed")
	}
}
