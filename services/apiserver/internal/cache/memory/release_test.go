package memory

import (
	"context"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"
)

func TestReleaseNeedsAnIdleProcessWithGarbage(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct {
		name                  string
		allocated, live, held uint64
		want                  bool
	}{
		{"nothing to release", mib, 100 * mib, 100 * mib, false},
		{"too little to release", mib, 60 * mib, 75 * mib, false},
		{"enough for a small heap", mib, 60 * mib, 76 * mib, true},
		{"too little for a large heap", mib, 600 * mib, 616 * mib, false},
		{"enough for a large heap", mib, 600 * mib, 675 * mib, true},
		{"busy", 5 * mib, 60 * mib, 200 * mib, false},
		{"grown heap", mib, 100 * mib, 90 * mib, false},
	} {
		if got := releasable(c.allocated, c.live, c.held); got != c.want {
			t.Errorf("%s: got %t, want %t", c.name, got, c.want)
		}
	}
}

func TestReleaseWhenIdleReturnsMemoryToTheSystem(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	ctx, stop := context.WithCancel(t.Context())
	tick := make(chan time.Time)
	ended := make(chan error)
	go func() { ended <- releaseWhenIdle(ctx, tick) }()
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
