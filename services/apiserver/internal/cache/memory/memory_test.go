package memory_test

import (
	"maps"
	"math"
	"runtime/debug"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"binnacle/services/apiserver/internal/cache/memory"
)

// store holds items of 10 bytes.
type store struct {
	part    *memory.Quota
	entries int64
	mu      sync.Mutex
}

// newStore registers a store as a cache of the budget.
func newStore(b *memory.Budget, name string, share int64) *store {
	s := &store{}
	s.part = b.Cache(name, share, s.shrink)
	return s
}

// keep adds n items.
func (s *store) keep(n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.entries += n
	s.part.Add(10 * n)
}

// shrink removes items of at least the given number of bytes, if there are enough.
func (s *store) shrink(bytes int64) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := min((bytes+9)/10, s.entries)
	s.entries -= n
	s.part.Add(-10 * n)
	return 10 * n
}

// TestCachesShrinkByShare checks that caches may use what others leave, and shrink by their shares
// when memory is short.
func TestCachesShrinkByShare(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	b := memory.New(900, reg)
	history := b.History("history")
	large := newStore(b, "large", 3)
	small := newStore(b, "small", 1)
	wantSizes := func(step string, wantLarge, wantSmall int64) {
		t.Helper()
		b.EvictToFit()
		if large.entries != wantLarge || small.entries != wantSmall {
			t.Errorf("%s: got %d and %d, want %d and %d", step, large.entries, small.entries, wantLarge, wantSmall)
		}
	}
	small.keep(100)
	wantSizes("alone, up to two thirds", 0, 60)
	large.keep(100)
	wantSizes("beside another, by share", 45, 15)
	large.shrink(400)
	small.keep(100)
	wantSizes("what the other does not use", 5, 55)
	history.Add(600)
	large.keep(100)
	wantSizes("history first", 22, 7)
	history.Add(600) // more than the owner may add
	wantSizes("nothing is left", 0, 0)
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			got[name] = m.GetGauge().GetValue()
		}
	}
	want := map[string]float64{
		"binnacle_cache_memory_bytes history": 1200, "binnacle_cache_memory_bytes large": 0, "binnacle_cache_memory_bytes small": 0,
		"binnacle_cache_memory_limit_bytes": 900,
	}
	if !maps.Equal(got, want) {
		t.Errorf("got metrics %v, want %v", got, want)
	}
}

// TestBudgetHoldsUnderConcurrency checks that the budget holds after concurrent additions.
func TestBudgetHoldsUnderConcurrency(t *testing.T) {
	budget := memory.New(900, nil)
	stores := []*store{newStore(budget, "a", 1), newStore(budget, "b", 1), newStore(budget, "c", 2)}
	var wg sync.WaitGroup
	for i := range 9 {
		wg.Go(func() {
			for range 500 {
				stores[i%3].keep(1)
				budget.EvictToFit()
			}
		})
	}
	wg.Wait()
	budget.EvictToFit()
	var sum int64
	for _, s := range stores {
		sum += 10 * s.entries
		if s.part.Used() != 10*s.entries {
			t.Errorf("part uses %d bytes, want %d", s.part.Used(), 10*s.entries)
		}
	}
	if sum > 600 || sum < 500 {
		t.Errorf("%d bytes are kept, want 500 to 600", sum)
	}
}

// TestLimitDefaultsToShareOfRuntimeLimit checks that a configured size takes precedence over the limit of the runtime, which
// takes precedence over the default.
func TestLimitDefaultsToShareOfRuntimeLimit(t *testing.T) {
	was := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(was)
	for _, tc := range []struct{ requested, runtime, want int64 }{
		{requested: 5 << 20, runtime: 1 << 30, want: 5 << 20},
		{requested: 0, runtime: 1 << 30, want: 256 << 20},
		{requested: 0, runtime: 8 << 20, want: memory.Least},
		{requested: 0, runtime: math.MaxInt64, want: memory.Default},
	} {
		debug.SetMemoryLimit(tc.runtime)
		if got := memory.Limit(tc.requested); got != tc.want {
			t.Errorf("Limit(%d) with a runtime limit of %d: got %d, want %d", tc.requested, tc.runtime, got, tc.want)
		}
	}
}
