package hostile

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"binnacle/e2e/harness"
)

const (
	// patience bounds the wait for the heap to be back.
	patience = 60 * time.Second
	// spare is what the heap may have grown by besides: caches fill themselves.
	spare = 96 << 20
)

func TestMain(m *testing.M) {
	if where := os.Getenv(bystanderEnv); where != "" {
		if err := goFirst(); err != nil {
			fmt.Fprintln(os.Stderr, "the bystander waits for processors too, which shows in what it sees:", err)
		}
		if err := standBy(where); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestHostileClients: see the package's comment.
func TestHostileClients(t *testing.T) {
	seed, err := strconv.ParseUint(environment("BINNACLE_HOSTILE_SEED", fmt.Sprint(rand.Uint64())), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("BINNACLE_HOSTILE_SEED=%d", seed)
	long := environment("BINNACLE_HOSTILE", "") == "long"
	whole := 40 * time.Second
	if long {
		if whole, err = time.ParseDuration(environment("BINNACLE_HOSTILE_TIME", "10m")); err != nil {
			t.Fatal(err)
		}
	}
	mutated, err := mutations(harness.Project(t))
	if err != nil {
		t.Fatal(err)
	}
	attacks := slices.Concat(connections(), bombardments(environment("BINNACLE_HOSTILE_BOMBS", "") == "each"), []attack{garbage(), mutated})
	share := whole / time.Duration(2*(len(attacks)-1))
	only, err := regexp.Compile(environment("BINNACLE_HOSTILE_ONLY", ""))
	if err != nil {
		t.Fatal(err)
	}
	attacks = slices.DeleteFunc(attacks, func(a attack) bool { return !only.MatchString(a.name) })

	x, b := start(t, rand.New(rand.NewPCG(seed, 0)), long)
	if err := giveWay(); err != nil {
		t.Fatal(err)
	}
	quiet := x.during(t, b, share, attack{name: "undisturbed"})
	busy := x.during(t, b, share, attack{name: "the same, on a busy machine", attackers: runtime.NumCPU(), once: func(ctx context.Context, _ *target, _ *rand.Rand) {
		for ctx.Err() == nil {
		}
	}})
	before, err := x.heap()
	if err != nil {
		t.Fatal(err)
	}
	var worst waits
	var by string
	for _, a := range attacks {
		d := share
		if a.name == mutated.name {
			d = whole / 2
		}
		if w := x.during(t, b, d, a); w.P99 > worst.P99 {
			worst, by = w, a.name
		}
	}
	harness.Eventually(t, patience, "memory back to where it was", func() error {
		after, err := x.heap()
		if err == nil && after > before+spare {
			err = fmt.Errorf("the heap has %.0f MiB, %.0f before", after/(1<<20), before/(1<<20))
		}
		return err
	})
	after, _ := x.heap()
	peak, _ := x.metric("process_resident_memory_bytes", "")
	t.Logf("99%% of the bystander's requests within %v undisturbed, %v on a busy machine, %v at worst, by %s", quiet.P99, busy.P99, worst.P99, by)
	t.Logf("heap of %.0f MiB before and %.0f MiB after, %.0f MiB resident; %d requests of attackers", before/(1<<20), after/(1<<20), peak/(1<<20), x.sent.Load())
}

// during attacks for some time, and tells how the bystander fared.
func (x *target) during(t *testing.T, b *witness, d time.Duration, a attack) waits {
	t.Helper()
	if _, err := b.take(); err != nil {
		t.Errorf("before %s: %v", a.name, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	begin := time.Now()
	used, _ := x.metric("process_cpu_seconds_total", "")
	defer x.profile(t, a.name, d)()
	seed := x.rand.Uint64()
	var drawn atomic.Uint64
	if a.attackers == 0 {
		<-ctx.Done()
	} else {
		n := a.attackers
		if x.long {
			n *= 2
		}
		crowd(ctx, n, func(ctx context.Context, i int) {
			a.once(ctx, x, rand.New(rand.NewPCG(seed, drawn.Add(1))))
			rest(ctx)
		})
	}
	w, err := b.take()
	if err != nil {
		t.Errorf("%s hurts others: %v", a.name, err)
	}
	failed, err := x.metric("apiserver_request_total", `code="500"`)
	if err != nil {
		t.Errorf("after %s: %v", a.name, err)
	}
	x.mu.Lock()
	for _, text := range slices.Sorted(maps.Keys(x.failed)) {
		t.Errorf("%s: %d times answered with 500: %s", a.name, x.failed[text], text)
	}
	if n := failed - x.counted; n > 0 && len(x.failed) == 0 {
		t.Errorf("%s: the server counts %v answers of 500", a.name, n)
	}
	x.counted = failed
	clear(x.failed)
	x.mu.Unlock()
	if !x.server.Running() || strings.Contains(x.server.Log(), "panic") {
		t.Fatalf("%s: the server has panicked", a.name)
	}
	resident, _ := x.metric("process_resident_memory_bytes", "")
	all, _ := x.metric("process_cpu_seconds_total", "")
	t.Logf("%-27s %v, %4.0f MiB resident, %.2f CPUs", a.name, w, resident/(1<<20), (all-used)/time.Since(begin).Seconds())
	return w
}
