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
	// waitTimeout bounds the wait for the heap to shrink.
	waitTimeout = 60 * time.Second
	// heapTolerance is the heap growth that filled caches may cause.
	heapTolerance = 96 << 20
)

func TestMain(m *testing.M) {
	if where := os.Getenv(probeEnv); where != "" {
		if err := raisePriority(); err != nil {
			fmt.Fprintln(os.Stderr, "cannot raise the priority of the probe client; its latencies include waits for a CPU:", err)
		}
		if err := runProbe(where); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestAttacksDoNotAffectProbeClient runs the attacks that need no rights in a namespace.
func TestAttacksDoNotAffectProbeClient(t *testing.T) {
	seed, err := strconv.ParseUint(envOr("BINNACLE_HOSTILE_SEED", fmt.Sprint(rand.Uint64())), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("BINNACLE_HOSTILE_SEED=%d", seed)
	long := envOr("BINNACLE_HOSTILE", "") == "long"
	whole := 40 * time.Second
	if long {
		if whole, err = time.ParseDuration(envOr("BINNACLE_HOSTILE_TIME", "10m")); err != nil {
			t.Fatal(err)
		}
	}
	mutated, err := mutationAttack(harness.Project(t))
	if err != nil {
		t.Fatal(err)
	}
	attacks := slices.Concat(connectionAttacks(),
		exhaustionAttacks(envOr("BINNACLE_HOSTILE_EXHAUSTION", "") == "each"), []attack{malformedRequestAttack(), mutated})
	attackTime := whole / time.Duration(2*(len(attacks)-1))
	only, err := regexp.Compile(envOr("BINNACLE_HOSTILE_ONLY", ""))
	if err != nil {
		t.Fatal(err)
	}
	attacks = slices.DeleteFunc(attacks, func(a attack) bool { return !only.MatchString(a.name) })

	server, probeProcess := startTarget(t, rand.New(rand.NewPCG(seed, 0)), long)
	attackAtLowPriority(t)
	quiet := server.measureAttack(t, probeProcess, attackTime, attack{name: "no attack"})
	busy := server.measureAttack(t, probeProcess, attackTime, attack{
		name:      "busy machine",
		attackers: runtime.NumCPU(),
		run: func(ctx context.Context, _ *target, _ *rand.Rand) {
			for ctx.Err() == nil {
			}
		},
	})
	before, err := server.heapSize()
	if err != nil {
		t.Fatal(err)
	}
	var worst summary
	var worstAttack string
	for _, a := range attacks {
		duration := attackTime
		if a.name == mutated.name {
			duration = whole / 2
		}
		if latencies := server.measureAttack(t, probeProcess, duration, a); latencies.P99 > worst.P99 {
			worst, worstAttack = latencies, a.name
		}
	}
	harness.Eventually(t, waitTimeout, "the heap to shrink", func() error {
		after, err := server.heapSize()
		if err == nil && after > before+heapTolerance {
			err = fmt.Errorf("heap: got %.0f MiB, had %.0f MiB before", after/(1<<20), before/(1<<20))
		}
		return err
	})
	after, _ := server.heapSize()
	peak, _ := server.sumMetric("process_resident_memory_bytes", "")
	t.Logf("probe client p99: %v without attack, %v on a busy machine, %v in the worst attack, %s", quiet.P99,
		busy.P99, worst.P99, worstAttack)
	t.Logf("heap of %.0f MiB before and %.0f MiB after, %.0f MiB resident; %d requests of attackers", before/(1<<20),
		after/(1<<20), peak/(1<<20), server.requestCount.Load())
}

// measureAttack runs an attack for duration and returns the latencies of the probe client. It
// checks that no request of the probe client failed and that the server returned no unexpected 500.
func (x *target) measureAttack(t *testing.T, probeProc *probeProcess, duration time.Duration, measured attack) summary {
	t.Helper()
	if _, err := probeProc.collect(); err != nil {
		t.Errorf("before %s: %v", measured.name, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), duration)
	defer cancel()
	start := time.Now()
	cpuBefore, _ := x.sumMetric("process_cpu_seconds_total", "")
	defer x.startProfile(t, measured.name, duration)()
	seed := x.rand.Uint64()
	var drawn atomic.Uint64
	if measured.attackers == 0 {
		<-ctx.Done()
	} else {
		attackers := measured.attackers
		if x.long {
			attackers *= 2
		}
		runAttackers(ctx, attackers, func(ctx context.Context, i int) {
			measured.run(ctx, x, rand.New(rand.NewPCG(seed, drawn.Add(1))))
			pauseAttacker(ctx)
		})
	}
	latencies, err := probeProc.collect()
	if err != nil {
		t.Errorf("%s affects the probe client: %v", measured.name, err)
	}
	failed, err := x.sumMetric("apiserver_request_total", `code="500"`)
	if err != nil {
		t.Errorf("after %s: %v", measured.name, err)
	}
	x.mu.Lock()
	for _, text := range slices.Sorted(maps.Keys(x.serverErrors)) {
		t.Errorf("%s: %d responses with code 500, want none: %s", measured.name, x.serverErrors[text], text)
	}
	if attackers := failed - x.expectedErrors; attackers > 0 && len(x.serverErrors) == 0 {
		t.Errorf("%s: the server counts %v unexpected responses with code 500, want 0", measured.name, attackers)
	}
	x.expectedErrors = failed
	clear(x.serverErrors)
	x.mu.Unlock()
	if !x.server.Running() || strings.Contains(x.server.Log(), "panic") {
		t.Fatalf("%s: the server panicked", measured.name)
	}
	resident, _ := x.sumMetric("process_resident_memory_bytes", "")
	cpuAfter, _ := x.sumMetric("process_cpu_seconds_total", "")
	t.Logf("%-27s %v, %4.0f MiB resident, %.2f CPUs", measured.name, latencies, resident/(1<<20),
		(cpuAfter-cpuBefore)/time.Since(start).Seconds())
	return latencies
}
