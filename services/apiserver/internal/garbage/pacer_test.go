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
		live uint64
		want int
	}{
		{0, 400}, {4 * mib, 400}, {16 * mib, 100}, {32 * mib, 50}, {60 * mib, 33}, {288 * mib, 33},
		{576 * mib, 33}, {960 * mib, 20}, {9600 * mib, 10},
	} {
		if got := growth(c.live); got != c.want {
			t.Errorf("%d MiB live: %d %%, want %d %%", c.live/mib, got, c.want)
		}
	}
}

// The pace follows what lives, up and down.
func TestPace(t *testing.T) {
	was := debug.SetGCPercent(101)
	defer debug.SetGCPercent(was)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- Pace(ctx) }()
	percent := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	until := func(what string, ok func(percent uint64) bool) {
		for begin := time.Now(); ; runtime.Gosched() {
			runtime.GC()
			metrics.Read(percent)
			p := percent[0].Value.Uint64()
			if ok(p) {
				return
			}
			if time.Since(begin) > time.Minute {
				t.Fatalf("%s: %d %%", what, p)
			}
		}
	}
	kept := make([]byte, 100<<20)
	until("much lives", func(p uint64) bool { return p < 50 })
	runtime.KeepAlive(kept)
	kept = nil
	until("little lives", func(p uint64) bool { return p >= 100 && p != 101 })
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
