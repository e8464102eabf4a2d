package server

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// arrivingBody is a body of a principal that arrives.
func arrivingBody(t *testing.T, room *bodies, name string) *reservedBody {
	b := &reservedBody{room: room, ctx: t.Context(), user: somebody(name)}
	b.arriving, b.refuse = context.WithCancelCause(t.Context())
	room.arrives(b)
	t.Cleanup(func() {
		room.arrived(b)
		b.refuse(nil)
	})
	return b
}

// leaves has a body that is refused give its memory back, as its request does.
func (b *reservedBody) leavesWhenRefused() {
	go func() {
		<-b.arriving.Done()
		b.leave()
	}()
}

// TestStalledBodiesLeaveMemoryToOtherPrincipals: the service accounts of many namespaces of one
// client hold all memory with bodies that stop arriving. The body of another client gets some.
func TestStalledBodiesLeaveMemoryToOtherPrincipals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		room := newBodies(bodiesLeast)
		for i := range 20 {
			for {
				b := arrivingBody(t, room, fmt.Sprintf("system:serviceaccount:n%d:a", i))
				b.leavesWhenRefused()
				leave, ok := room.enterNow(b.user, 64<<10)
				if !ok {
					break
				}
				b.leaves = append(b.leaves, leave)
				room.occupies(b, 64<<10)
			}
		}
		time.Sleep(stalledAfter)
		begin := time.Now()
		if err := arrivingBody(t, room, "system:serviceaccount:other:a").reserve(256 << 10); err != nil {
			t.Fatal(err)
		}
		if waited := time.Since(begin); waited > pressEvery {
			t.Errorf("a body waits %v for the memory of stalled ones", waited)
		}
	})
}

// TestBodiesOfOnePrincipalGrowOneAfterTheOther: each holds what another one needs to grow.
func TestBodiesOfOnePrincipalGrowOneAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		room := newBodies(4 << 20)
		first, second := arrivingBody(t, room, "a"), arrivingBody(t, room, "a")
		first.leavesWhenRefused()
		second.leavesWhenRefused()
		for _, b := range []*reservedBody{first, second} {
			if err := b.reserve(1 << 20); err != nil {
				t.Fatal(err)
			}
		}
		refused := make(chan error, 1)
		go func() { refused <- second.reserve(5 << 19) }()
		begin := time.Now()
		if err := first.reserve(5 << 19); err != nil {
			t.Errorf("the older one: %v", err)
		}
		if waited := time.Since(begin); waited > stalledAfter+pressEvery {
			t.Errorf("the older one waits %v", waited)
		}
		if err := <-refused; !errors.Is(err, errNoRoom) {
			t.Errorf("the later one: %v", err)
		}
	})
}
