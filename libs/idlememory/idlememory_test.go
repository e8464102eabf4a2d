package idlememory

import (
	"context"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"
)

// TestReleaseNeedsAnIdleProcessWithGarbage checks when memory is returned to the system.
func TestReleaseNeedsAnIdleProcessWithGarbage(t *testing.T) {
	const mib = 1 << 20
	for _, test := range []struct {
		name                  string
		allocated, live, held uint64
		want                  bool
	}{
		{name: "nothing to release", allocated: mib, live: 100 * mib, held: 100 * mib},
		{name: "too little for a small heap", allocated: mib, live: 2 * mib, held: 3*mib - 1},
		{name: "enough for a small heap", allocated: mib, live: 2 * mib, held: 3 * mib, want: true},
		{name: "too little for a medium heap", allocated: mib, live: 30 * mib, held: 39 * mib},
		{name: "enough for a medium heap", allocated: mib, live: 30 * mib, held: 40 * mib, want: true},
		{name: "too little for a large heap", allocated: mib, live: 600 * mib, held: 616 * mib},
		{name: "enough for a large heap", allocated: mib, live: 600 * mib, held: 675 * mib, want: true},
		{name: "busy", allocated: 5 * mib, live: 60 * mib, held: 200 * mib},
		{name: "grown heap", allocated: mib, live: 100 * mib, held: 90 * mib},
	} {
		if got := shouldRelease(test.allocated, test.live, test.held); got != test.want {
			t.Errorf("%s: got %t, want %t", test.name, got, test.want)
		}
	}
}

// TestReleaseReturnsGarbageOfABusyPeriod checks that the garbage of a busy period is returned
// once the process is idle.
func TestReleaseReturnsGarbageOfABusyPeriod(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	ctx, stop := context.WithCancel(t.Context())
	tick := make(chan time.Time)
	ended := make(chan error)
	go func() { ended <- releaseAt(ctx, tick) }()
	tick <- time.Time{}
	garbage := make([]byte, 256<<20)
	runtime.KeepAlive(garbage)
	garbage = nil
	released := []metrics.Sample{{Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(released)
	before := released[0].Value.Uint64()
	runtime.GC()  // a collection in progress may have marked the allocation as live
	for range 4 { // the channel is unbuffered, so each check ends before the next
		tick <- time.Time{}
	}
	metrics.Read(released)
	if after := released[0].Value.Uint64(); after < before+128<<20 {
		t.Errorf("released %d bytes before and %d after, want 128 MiB more", before, after)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
