package watchcache

import "testing"

// A watcher that was nudged, and closed by whoever that resumed, before whoever parks it has put it
// on the list, is not on it afterwards.
func TestParkingLate(t *testing.T) {
	s := &Store{watchers: map[*Watcher]struct{}{}}
	g := &group{watchers: 2}
	wk := g.arm()
	w := &Watcher{store: s, nudge: make(chan struct{}, 1), group: g}
	w.armed.Store(wk)
	w.resume = func() { // park has come as far as this
		<-w.nudge
		w.Close()
	}
	w.parked.Store(true)
	w.Nudge()
	if wk.park(w) || len(wk.parked) > 0 {
		t.Error("the closed watcher stays")
	}
}
