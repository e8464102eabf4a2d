package limit_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"

	"binnacle/libs/limit"
)

type claim = limit.Claim[string]

// fill acquires single units for a key until none are available, and returns their number.
func fill(queue *limit.Queue[string], unit claim) (acquired int) {
	for queue.TryAcquire(unit) {
		acquired++
	}
	return acquired
}

// TestKeyHoldsNoMoreThanIsFree checks that the first key gets half of the units, and each further
// key half of the rest.
func TestKeyHoldsNoMoreThanIsFree(t *testing.T) {
	queue := limit.New[string](limit.Options{Size: 100, FairShare: true})
	a, b, c := fill(queue, claim{Key: "a"}), fill(queue, claim{Key: "b"}), fill(queue, claim{Key: "c"})
	if a != 50 || b != 25 || c != 13 {
		t.Errorf("got %d, %d, %d units, want 50, 25, 13", a, b, c)
	}
}

// TestBothKeysOfAClaimHaveAShare checks that neither many second keys of one key nor many keys with
// one second key hold everything.
func TestBothKeysOfAClaimHaveAShare(t *testing.T) {
	for name, claimOf := range map[string]func(i string) claim{
		"one key":        func(i string) claim { return claim{Key: "a", SecondKey: i} },
		"one second key": func(i string) claim { return claim{Key: i, SecondKey: "a"} },
	} {
		queue := limit.New[string](limit.Options{Size: 8, FairShare: true})
		acquired := 0
		for _, i := range []string{"1", "2", "3", "4", "5"} {
			acquired += fill(queue, claimOf(i))
		}
		if acquired != 4 || !queue.TryAcquire(claim{Key: "b", SecondKey: "c"}) {
			t.Errorf("%s: got %d units, want 4 of 8", name, acquired)
		}
		queue.Release(claim{Key: "b", SecondKey: "c"})
		queue.Release(claimOf("1"))
		if acquired := fill(queue, claimOf("2")); acquired != 1 {
			t.Errorf("%s: got %d units after a release, want 1", name, acquired)
		}
	}
}

// TestWaitingSecondKeyDoesNotDelayOtherSecondKeys checks that a claim that waits for the share of
// its second key does not delay a claim of the same key with another one.
func TestWaitingSecondKeyDoesNotDelayOtherSecondKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue := limit.New[string](limit.Options{Size: 8, FairShare: true})
		for _, key := range []string{"1", "2", "3", "4"} {
			if !queue.TryAcquire(claim{Key: key, SecondKey: "slow"}) {
				t.Fatalf("TryAcquire() of key %s = false, want true", key)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- queue.Acquire(ctx, claim{Key: "a", SecondKey: "slow"}) }()
		synctest.Wait()
		if !queue.TryAcquire(claim{Key: "a", SecondKey: "fast"}) {
			t.Error("TryAcquire() = false, want true: a waiting claim with another second key must not block it")
		}
		cancel()
		if err := <-ended; err == nil {
			t.Error("Acquire() = nil, want an error: the second key has used up its share")
		}
	})
}

// TestNilQueueHasNoLimit checks that a Queue without a size admits every claim.
func TestNilQueueHasNoLimit(t *testing.T) {
	queue := limit.New[string](limit.Options{})
	if err := queue.Acquire(t.Context(), claim{Cost: 1 << 40}); err != nil || !queue.TryAcquire(claim{}) || queue.Size() != 0 {
		t.Errorf("queue without a size: got error %v, want every claim admitted and size 0", err)
	}
	queue.Release(claim{})
}

// TestQueueNeverExceedsItsSize draws sequences of claims. At most Size units are in use, a claim
// that no other claim competes with fits, and no unit is lost.
func TestQueueNeverExceedsItsSize(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size, share := rapid.IntRange(1, 30).Draw(t, "size"), rapid.Bool().Draw(t, "share")
		queue := limit.New[string](limit.Options{Size: size, FairShare: share})
		var admitted []claim
		used, held := 0, map[string]int{}
		for range rapid.IntRange(0, 200).Draw(t, "steps") {
			if len(admitted) > 0 && rapid.Bool().Draw(t, "release") {
				queue.Release(admitted[0])
				used, held[admitted[0].Key] = used-admitted[0].Cost, held[admitted[0].Key]-admitted[0].Cost
				admitted = admitted[1:]
				continue
			}
			next := claim{
				Key:  rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "key"),
				Cost: rapid.IntRange(1, 4).Draw(t, "cost"), MinFree: rapid.IntRange(0, 2).Draw(t, "keep"),
				NoFairShare: rapid.Bool().Draw(t, "unshared"),
			}
			want := next.Cost <= size-used-next.MinFree
			if share && !next.NoFairShare {
				want = held[next.Key]+next.Cost <= size-used-next.MinFree
			}
			lacking, _ := queue.Shortage(next)
			got := queue.TryAcquire(next)
			if got != want {
				t.Fatalf("%+v with %d of %d units in use: got %t, want %t", next, used, size, got, want)
			}
			if share && !next.NoFairShare && got != (lacking <= 0) {
				t.Fatalf("TryAcquire(%+v) = %t with a shortage of %d, want %t", next, got, lacking, lacking <= 0)
			}
			if got {
				admitted, used = append(admitted, next), used+next.Cost
				held[next.Key] += next.Cost
			}
			if queue.InUse() != used || used > size {
				t.Fatalf("got %d units in use, want %d of %d", queue.InUse(), used, size)
			}
		}
	})
}

// TestQueueServesKeysInTurn checks that one claim of each key is admitted before a second claim of
// any key, and that canceled claims are skipped.
func TestQueueServesKeysInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue := limit.New[string](limit.Options{Size: 1})
		if !queue.TryAcquire(claim{Key: "many"}) {
			t.Fatal("TryAcquire() of a free unit = false, want true")
		}
		var order []string
		canceled, cancel := context.WithCancel(t.Context())
		wait := func(ctx context.Context, key string) {
			go func() {
				if queue.Acquire(ctx, claim{Key: key}) == nil {
					order = append(order, key)
				}
			}()
			synctest.Wait() // in this order
		}
		for range 3 {
			wait(t.Context(), "many")
		}
		wait(canceled, "few")
		wait(t.Context(), "few")
		wait(t.Context(), "few")
		cancel()
		synctest.Wait()
		for range 6 { // five waiters and the first holder
			queue.Release(claim{})
			synctest.Wait()
		}
		if got := strings.Join(order, " "); got != "many few many few many" {
			t.Errorf("order = %s, want \"many few many few many\"", got)
		}
		if queue.InUse() != 0 {
			t.Errorf("%d units are in use at the end, want 0", queue.InUse())
		}
	})
}

// TestOldestLargeClaimIsAdmitted checks that smaller claims overtake a large one for a bounded
// number of times, that claims with a reserve pass it, and that a claim for units of its own key
// blocks no other key.
func TestOldestLargeClaimIsAdmitted(t *testing.T) {
	for _, test := range []struct {
		name    string
		holder  string // of the units that the large claim waits for, in addition to small ones
		blocked bool
	}{
		{name: "others hold the units", holder: "other", blocked: true},
		{name: "its own key holds the units", holder: "large", blocked: false},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				queue := limit.New[string](limit.Options{Size: 100, FairShare: true})
				if !queue.TryAcquire(claim{Key: test.holder, Cost: 40}) {
					t.Fatal("TryAcquire() of the holder = false, want true")
				}
				ctx, cancel := context.WithCancel(t.Context())
				admitted := false
				go func() {
					admitted = queue.Acquire(ctx, claim{Key: "large", Cost: 61, MinFree: 1, NoFairShare: true}) == nil
				}()
				synctest.Wait()
				small, overtakes := claim{Key: "small", MinFree: 1}, 0
				for ; overtakes < 100 && queue.TryAcquire(small); overtakes++ {
					queue.Release(small)
				}
				if blocked := overtakes < 100; blocked != test.blocked {
					t.Errorf("after %d small claims, small claims are blocked = %t, want %t", overtakes, blocked, test.blocked)
				}
				if !queue.TryAcquire(claim{Key: "reserve"}) {
					t.Error("TryAcquire() of a claim that may use reserved units = false, want true")
				}
				queue.Release(claim{Key: "reserve"})
				queue.Release(claim{Key: test.holder, Cost: 40})
				synctest.Wait()
				if !admitted {
					t.Error("large claim after the release: got it waiting, want it admitted")
				}
				cancel()
			})
		})
	}
}

// TestCanceledLargeClaimUnblocksOthers checks that smaller claims are admitted when the overdue
// claim before them is canceled.
func TestCanceledLargeClaimUnblocksOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue := limit.New[string](limit.Options{Size: 10})
		if !queue.TryAcquire(claim{Key: "holder", Cost: 5}) {
			t.Fatal("TryAcquire() of the holder = false, want true")
		}
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _ = queue.Acquire(ctx, claim{Key: "large", Cost: 10}) }()
		synctest.Wait()
		for queue.TryAcquire(claim{Key: "small"}) {
			queue.Release(claim{Key: "small"})
		}
		admitted := false
		go func() { admitted = queue.Acquire(t.Context(), claim{Key: "small"}) == nil }()
		synctest.Wait()
		if admitted {
			t.Fatal("small claim behind the overdue one: got it admitted, want it to wait")
		}
		cancel()
		synctest.Wait()
		if !admitted {
			t.Error("small claim after the overdue one was canceled: got it waiting, want it admitted")
		}
	})
}

// TestMaxWaitingBoundsTheQueueOfAKey checks that a claim fails at once if MaxWaiting claims of its
// key wait.
func TestMaxWaitingBoundsTheQueueOfAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue := limit.New[string](limit.Options{Size: 1, MaxWaiting: 1})
		queue.TryAcquire(claim{Key: "holder"})
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _ = queue.Acquire(ctx, claim{Key: "a"}) }()
		synctest.Wait()
		if err := queue.Acquire(ctx, claim{Key: "a"}); !errors.Is(err, limit.ErrFull) || errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want ErrFull at once", err)
		}
		cancel()
		if err := queue.Acquire(ctx, claim{Key: "b"}); !errors.Is(err, limit.ErrFull) || !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want ErrFull and the cancellation", err)
		}
	})
}

// TestQueueKeepsLimitWhileClaimsAreCanceled checks that the limit holds and that no unit is lost
// while claims are canceled.
func TestQueueKeepsLimitWhileClaimsAreCanceled(t *testing.T) {
	const size = 8
	queue := limit.New[string](limit.Options{Size: size, FairShare: true})
	var inUse atomic.Int64
	var clients sync.WaitGroup
	for i := range 64 {
		clients.Go(func() {
			draw := rand.New(rand.NewPCG(uint64(i), 1))
			for range 500 {
				ctx, cancel := context.WithCancel(t.Context())
				if draw.IntN(3) == 0 {
					go cancel()
				}
				next := claim{Key: string(rune('a' + draw.IntN(5))), Cost: 1 + draw.IntN(4)}
				if queue.Acquire(ctx, next) == nil {
					if units := inUse.Add(int64(next.Cost)); units > size {
						t.Errorf("got %d units in use, want at most %d", units, size)
					}
					inUse.Add(-int64(next.Cost))
					queue.Release(next)
				}
				cancel()
			}
		})
	}
	clients.Wait()
	if units := queue.InUse(); units != 0 {
		t.Errorf("got %d units in use at the end, want 0", units)
	}
}

// TestAcquireWithoutWaitAllocatesNothing protects the fast path of Acquire, which runs for every
// request.
func TestAcquireWithoutWaitAllocatesNothing(t *testing.T) {
	queue := limit.New[string](limit.Options{Size: 400, FairShare: true})
	queue.TryAcquire(claim{Key: "b"})
	if allocations := testing.AllocsPerRun(100, func() {
		if queue.Acquire(t.Context(), claim{Key: "a"}) == nil {
			queue.Release(claim{Key: "a"})
		}
	}); allocations > 0 {
		t.Errorf("got %v allocations, want 0", allocations)
	}
}
