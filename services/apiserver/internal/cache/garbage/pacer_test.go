package garbage

import (
	"context"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"
)

func TestGrowth(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct {
		live        uint64
		want, start int
	}{
		{0, 400, 400}, {4 * mib, 400, 400}, {16 * mib, 200, 200}, {32 * mib, 100, 100}, {60 * mib, 53, 100}, {120 * mib, 50, 100}, {240 * mib, 33, 50},
		{576 * mib, 13, 20}, {960 * mib, 10, 12}, {9600 * mib, 10, 10},
	} {
		if got, start := growth(c.live, 0, false), growth(c.live, 0, true); got != c.want || start != c.start {
			t.Errorf("%d MiB live: %d %%, want %d %%; at a start %d %%, want %d %%", c.live/mib, got, c.want, start, c.start)
		}
	}
}

// Who collects often lets more gather, up to a bound.
func TestHurry(t *testing.T) {
	const mib = 1 << 20
	var h hurry
	for i, c := range []struct {
		after time.Duration
		live  uint64
		want  int
	}{
		{10 * time.Millisecond, 32 * mib, 200}, {10 * time.Millisecond, 32 * mib, 400}, {500 * time.Millisecond, 32 * mib, 400},
		{10 * time.Millisecond, 32 * mib, 400}, {10 * time.Millisecond, 32 * mib, 400}, {0, 256 * mib, 50}, {0, 960 * mib, 13}, {0, mib, 3200},
		{2 * time.Second, 32 * mib, 400}, {2 * time.Second, 32 * mib, 200}, {time.Minute, 32 * mib, 100}, {time.Minute, 32 * mib, 100},
	} {
		h = h.after(c.after, true)
		if got := growth(c.live, h, false); got != c.want {
			t.Errorf("%d: %d MiB live, %v after the last collection: %d %%, want %d %%", i, c.live/mib, c.after, got, c.want)
		}
	}
	if got := hurry(2).after(time.Millisecond, false); got != 1 {
		t.Errorf("without large work the hurry is %d", got)
	}
}

// The pace follows what lives, up and down.
func TestPace(t *testing.T) {
	was := debug.SetGCPercent(101)
	defer debug.SetGCPercent(was)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	var p Pacer
	p.Large(1)
	go func() { ended <- p.Pace(ctx) }()
	percent := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	until := func(what string, ok func(percent uint64) bool) {
		for begin := time.Now(); ; runtime.Gosched() {
			runtime.GC()
			metrics.Read(percent)
			set := percent[0].Value.Uint64()
			if ok(set) {
				return
			}
			if time.Since(begin) > time.Minute {
				t.Fatalf("%s: %d %%", what, set)
			}
		}
	}
	kept := make([]byte, 100<<20)
	until("much lives", func(p uint64) bool { return p > 101 && p < 200 }) // in a hurry
	runtime.KeepAlive(kept)
	kept = nil
	until("little lives", func(p uint64) bool { return p > mostPercent })
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestGiveBack(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct {
		what             string
		since, live, has uint64
		want             bool
	}{
		{"nothing is left", mib, 100 * mib, 100 * mib, false},
		{"little is left", mib, 60 * mib, 75 * mib, false},
		{"some is left, of little", mib, 60 * mib, 76 * mib, true},
		{"the same, of much", mib, 600 * mib, 616 * mib, false},
		{"much is left, of much", mib, 600 * mib, 675 * mib, true},
		{"there is work", 5 * mib, 60 * mib, 200 * mib, false},
		{"less is left than lives, which grew", mib, 100 * mib, 90 * mib, false},
	} {
		if got := giveBack(c.since, c.live, c.has); got != c.want {
			t.Errorf("%s: %t", c.what, got)
		}
	}
}

// What is left goes back at the second look after it was made, as the first finds that
// there was work.
func TestLeftover(t *testing.T) {
	was := debug.SetGCPercent(-1) // none is collected but by what is tested
	defer debug.SetGCPercent(was)
	var l leftover
	l.look()
	kept := make([][]byte, 64)
	for i := range kept {
		kept[i] = make([]byte, 1<<20)
	}
	runtime.KeepAlive(kept)
	kept = nil
	if _, worthless := l.look(); worthless {
		t.Error("it was looked for while there was work")
	}
	if _, worthless := l.look(); !worthless {
		t.Error("64 MiB of garbage are not seen")
	}
	debug.FreeOSMemory()
	if _, worthless := l.look(); worthless {
		t.Error("it is not given back")
	}
}

// Looking is what gives it back.
func TestPaceGivesBack(t *testing.T) {
	was := debug.SetGCPercent(400)
	defer debug.SetGCPercent(was)
	ctx, stop := context.WithCancel(context.Background())
	look, ended := make(chan time.Time), make(chan error)
	go func() { ended <- new(Pacer).pace(ctx, look) }()
	look <- time.Time{} // it runs, and has looked once
	released := []metrics.Sample{{Name: "/memory/classes/heap/released:bytes"}}
	kept := make([]byte, 256<<20)
	runtime.KeepAlive(kept)
	kept = nil
	metrics.Read(released)
	before := released[0].Value.Uint64()
	runtime.GC()  // one that began with the allocation may have taken it for living
	for range 4 { // the last of them has been done when the next is taken
		look <- time.Time{}
	}
	metrics.Read(released)
	if after := released[0].Value.Uint64(); after < before+128<<20 {
		t.Errorf("%d bytes were released before, %d after", before, after)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
