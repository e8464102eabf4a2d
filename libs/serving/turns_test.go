package serving

import (
	"context"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
)

// TestTurns: addresses take turns, and who goes away is forgotten.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		many, few := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
		turns := newTurns(1)
		if err := turns.enter(t.Context(), many); err != nil {
			t.Fatal(err)
		}
		var order []string
		gone, goAway := context.WithCancel(t.Context())
		wait := func(ctx context.Context, from netip.Addr, name string) {
			go func() {
				if turns.enter(ctx, from) == nil {
					order = append(order, name)
				}
			}()
			synctest.Wait() // one after the other
		}
		for range 3 {
			wait(t.Context(), many, "many")
		}
		wait(gone, few, "gone")
		wait(t.Context(), few, "few")
		wait(t.Context(), few, "few")
		goAway()
		synctest.Wait()
		for range 6 { // the five that wait, and the first
			turns.leave()
			synctest.Wait()
		}
		if got := strings.Join(order, " "); got != "many few many few many" {
			t.Errorf("served %s", got)
		}
		if turns.free != 1 || len(turns.waiting)+len(turns.order) > 0 {
			t.Errorf("at the end %d are free, %v and %v wait", turns.free, turns.waiting, turns.order)
		}
	})
}

// TestTurnsOfLongAnswers: who asks for many at a time does not keep another address waiting for all
// of them.
func TestTurnsOfLongAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		of := func(address string) context.Context {
			return context.WithValue(t.Context(), belowKey{}, &turnConn{from: netip.MustParseAddr(address)})
		}
		answers := LongAnswers{newTurns(1)}
		if err := answers.Enter(of("10.0.0.1")); err != nil {
			t.Fatal(err)
		}
		var order []string
		for _, from := range []string{"10.0.0.1", "10.0.0.1", "10.0.0.1", "10.0.0.2"} {
			go func() {
				if answers.Enter(of(from)) == nil {
					order = append(order, from)
				}
			}()
			synctest.Wait() // one after the other
		}
		for range 5 {
			answers.Leave()
			synctest.Wait()
		}
		if got := strings.Join(order, " "); got != "10.0.0.1 10.0.0.2 10.0.0.1 10.0.0.1" {
			t.Errorf("served %s", got)
		}
	})
}

// TestFirstTurns: who goes first is served before all others, in the order in which they came, and is
// forgotten when it goes away.
func TestFirstTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := newTurns(1)
		if err := turns.enterFirst(t.Context()); err != nil {
			t.Fatal(err)
		}
		var order []string
		gone, goAway := context.WithCancel(t.Context())
		wait := func(name string, enter func() error) {
			go func() {
				if enter() == nil {
					order = append(order, name)
				}
			}()
			synctest.Wait()
		}
		wait("last", func() error { return turns.enter(t.Context(), netip.Addr{}) })
		wait("gone", func() error { return turns.enterFirst(gone) })
		wait("first", func() error { return turns.enterFirst(t.Context()) })
		wait("second", func() error { return turns.enterFirst(t.Context()) })
		goAway()
		synctest.Wait()
		for range 4 {
			turns.leave()
			synctest.Wait()
		}
		if got := strings.Join(order, " "); got != "first second last" {
			t.Errorf("served %s", got)
		}
		if turns.free != 1 || len(turns.first)+len(turns.order) > 0 {
			t.Errorf("at the end %d are free, %v and %v wait", turns.free, turns.first, turns.order)
		}
	})
}

// TestTurnOfWhoGoesAway: a turn that comes while its waiter goes away is the next one's.
func TestTurnOfWhoGoesAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := newTurns(1)
		for range 100 { // which of the two a waiter sees first is left to chance
			if err := turns.enter(t.Context(), netip.Addr{}); err != nil {
				t.Fatal(err)
			}
			ctx, goAway := context.WithCancel(t.Context())
			go func() {
				if turns.enter(ctx, netip.Addr{}) == nil {
					turns.leave()
				}
			}()
			synctest.Wait()
			goAway()
			turns.leave()
			synctest.Wait()
			if turns.free != 1 {
				t.Fatalf("%d turns are free, want 1", turns.free)
			}
		}
	})
}
