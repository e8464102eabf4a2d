package watchcache

import "testing"

// A watcher that is nudged and closed while it is being parked does not stay on the list of parked
// watchers.
func TestClosedWatcherIsNotParked(t *testing.T) {
	s := &Store{watchers: map[*Watcher]struct{}{}}
	g := &group{watchers: 2}
	wk := g.arm()
	w := &Watcher{store: s, nudge: make(chan struct{}, 1), group: g}
	w.armed.Store(wk)
	w.resume = func() { // called by park before it lists the watcher
		<-w.nudge
		w.Close()
	}
	w.parked.Store(true)
	w.Nudge()
	if wk.park(w) || len(wk.parked) > 0 {
		t.Error("closed watcher is still parked")
	}
}
