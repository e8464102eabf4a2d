package server

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"binnacle/services/apiserver/internal/request"
)

func newClient(name string, groups ...string) client {
	u := &request.User{Name: name, Groups: groups}
	return client{u, request.PrincipalOf(u, "")}
}

// acquireAll acquires units for a user until none are left for it, and returns their number.
func acquireAll(s *fairBudget, u client) (n int) {
	for {
		held, ok := s.tryAcquire(u, 1)
		if !ok || !held {
			return n
		}
		n++
	}
}

func TestFairBudgetIsShared(t *testing.T) {
	node, other := newClient("system:node:a", "system:nodes"), newClient("system:node:b", "system:nodes")
	suite, master := newClient("system:binnacle:authn-webhook", "system:binnacle"), newClient("root", "system:masters")
	s := newFairBudget(100)
	if n := acquireAll(s, newClient("greedy")); n != 45 {
		t.Errorf("one user got %d of 100 units, want 45", n)
	}
	for i := range 20 {
		if n := acquireAll(s, newClient(fmt.Sprint("user", i))); n == 0 && i < 3 {
			t.Errorf("user %d got no unit", i)
		}
	}
	if n := acquireAll(s, newClient("system:binnacle:authn-webhook")); n > 0 {
		t.Errorf("a user with only the name of a service got %d units of the reserve, want 0", n)
	}
	if n := acquireAll(s, node); n == 0 || n > 3 {
		t.Errorf("a node got %d units of the reserve, want 1 to 3", n)
	}
	if n := acquireAll(s, other); n == 0 {
		t.Error("a second node got no unit")
	}
	for i := range 100 {
		acquireAll(s, newClient(fmt.Sprint("system:node:", i), "system:nodes"))
	}
	if n := acquireAll(s, suite); n != 5 {
		t.Errorf("the suite's services got %d units, want 5", n)
	}
	if s.used != 100 {
		t.Errorf("got %d units used, want 100", s.used)
	}
	if held, ok := s.tryAcquire(master, 1); held || !ok {
		t.Errorf("administrator: got held = %t, ok = %t, want false, true", held, ok)
	}
	if _, ok := s.tryAcquire(suite, 1); ok {
		t.Error("more units acquired than exist")
	}
}

// At most size units are in use at any time, and none in the end.
func TestFairBudgetReturnsToZero(t *testing.T) {
	users := []client{
		newClient("a"), newClient("b"), newClient("c"), newClient("system:node:a", "system:nodes"),
		newClient("system:binnacle:x", "system:binnacle"), newClient("root", "system:masters"),
	}
	rapid.Check(t, func(t *rapid.T) {
		s := newFairBudget(rapid.IntRange(1, 30).Draw(t, "size"))
		var in []client
		for range rapid.IntRange(0, 200).Draw(t, "steps") {
			u := rapid.SampledFrom(users).Draw(t, "user")
			if len(in) > 0 && rapid.Bool().Draw(t, "leave") {
				s.release(in[0], 1)
				in = in[1:]
				continue
			}
			if len(in) == 0 && !s.admits(u) {
				t.Fatalf("%s was refused while all units are free", u.Name)
			}
			if held, _ := s.tryAcquire(u, 1); held {
				in = append(in, u)
			}
			if s.used != len(in) || s.used > s.size {
				t.Fatalf("got %d of %d units used, want %d", s.used, s.size, len(in))
			}
		}
		for _, u := range in {
			s.release(u, 1)
		}
		if s.used != 0 || len(s.held) != 0 {
			t.Fatalf("got %d units used by %v in the end, want none", s.used, s.held)
		}
	})
}

func (s *fairBudget) admits(u client) bool {
	held, ok := s.tryAcquire(u, 1)
	if held {
		s.release(u, 1)
	}
	return ok
}

// Requests that have begun find units after all others took their share.
func TestFairBudgetReservesForBegunRequests(t *testing.T) {
	s, u := newFairBudget(100), newClient("a")
	n := 0
	for ; n < 100; n++ {
		if _, ok := s.tryAcquireFor(u, 1, false); !ok {
			break
		}
	}
	if n != 30 {
		t.Errorf("got %d of 100 units for requests that have not begun, want 30", n)
	}
	if more := acquireAll(s, u); more != 15 {
		t.Errorf("got %d more units for requests that have begun, want 15", more)
	}
	if _, ok := s.tryAcquireFor(newClient("b"), 1, false); !ok {
		t.Error("another user got no unit")
	}
}

func TestFairBudgetAllocatesNothing(t *testing.T) {
	s, u := newFairBudget(400), newClient("a")
	s.tryAcquire(newClient("b"), 1)
	if n := testing.AllocsPerRun(100, func() {
		if held, _ := s.tryAcquire(u, 1); held {
			s.release(u, 1)
		}
	}); n > 0 {
		t.Errorf("got %v allocations, want 0", n)
	}
}
