package server

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"binnacle/services/apiserver/internal/request"
)

func somebody(name string, groups ...string) client {
	u := &request.User{Name: name, Groups: groups}
	return client{u, request.PrincipalOf(u, "")}
}

// fill takes slots for a user until there are none for it.
func fill(s *slots, u client) (n int) {
	for {
		held, ok := s.enter(u, 1)
		if !ok || !held {
			return n
		}
		n++
	}
}

func TestSlotsAreShared(t *testing.T) {
	node, other := somebody("system:node:a", "system:nodes"), somebody("system:node:b", "system:nodes")
	suite, master := somebody("system:binnacle:authn-webhook", "system:binnacle"), somebody("root", "system:masters")
	s := newSlots(100)
	if n := fill(s, somebody("greedy")); n != 45 {
		t.Errorf("one user got %d of 100", n)
	}
	for i := range 20 {
		if n := fill(s, somebody(fmt.Sprint("user", i))); n == 0 && i < 3 {
			t.Errorf("nothing is left for another user after %d", i)
		}
	}
	if n := fill(s, somebody("system:binnacle:authn-webhook")); n > 0 {
		t.Errorf("%d slots of the reserve for one who only has the name of a service", n)
	}
	if n := fill(s, node); n == 0 || n > 3 {
		t.Errorf("a node got %d of the reserve", n)
	}
	if n := fill(s, other); n == 0 {
		t.Error("nothing is left for a second node")
	}
	for i := range 100 {
		fill(s, somebody(fmt.Sprint("system:node:", i), "system:nodes"))
	}
	if n := fill(s, suite); n != 5 {
		t.Errorf("%d are left for the suite's services", n)
	}
	if s.used != 100 {
		t.Errorf("%d of 100 are used", s.used)
	}
	if held, ok := s.enter(master, 1); held || !ok {
		t.Errorf("an administrator: %t, %t", held, ok)
	}
	if _, ok := s.enter(suite, 1); ok {
		t.Error("more than there are")
	}
}

// TestSlotsAreGivenBack: whoever comes and goes, there are never more in use than
// there are, and in the end none.
func TestSlotsAreGivenBack(t *testing.T) {
	users := []client{
		somebody("a"), somebody("b"), somebody("c"), somebody("system:node:a", "system:nodes"),
		somebody("system:binnacle:x", "system:binnacle"), somebody("root", "system:masters"),
	}
	rapid.Check(t, func(t *rapid.T) {
		s := newSlots(rapid.IntRange(1, 30).Draw(t, "size"))
		var in []client
		for range rapid.IntRange(0, 200).Draw(t, "steps") {
			u := rapid.SampledFrom(users).Draw(t, "user")
			if len(in) > 0 && rapid.Bool().Draw(t, "leave") {
				s.leave(in[0], 1)
				in = in[1:]
				continue
			}
			if len(in) == 0 && !s.lets(u) {
				t.Fatalf("%s is refused though all slots are free", u.Name)
			}
			if held, _ := s.enter(u, 1); held {
				in = append(in, u)
			}
			if s.used != len(in) || s.used > s.size {
				t.Fatalf("%d of %d are used by %d", s.used, s.size, len(in))
			}
		}
		for _, u := range in {
			s.leave(u, 1)
		}
		if s.used != 0 || len(s.held) != 0 {
			t.Fatalf("%d are used, %v", s.used, s.held)
		}
	})
}

func (s *slots) lets(u client) bool {
	held, ok := s.enter(u, 1)
	if held {
		s.leave(u, 1)
	}
	return ok
}

// TestSlotsOfWhatHasBegun: there are some left for it when what has not got all that it may have, and all
// of that has begun meanwhile.
func TestSlotsOfWhatHasBegun(t *testing.T) {
	s, u := newSlots(100), somebody("a")
	n := 0
	for ; n < 100; n++ {
		if _, ok := s.enterFor(u, 1, false); !ok {
			break
		}
	}
	if n != 30 {
		t.Errorf("%d of 100 for what has not begun", n)
	}
	if more := fill(s, u); more != 15 {
		t.Errorf("%d more for what has", more)
	}
	if _, ok := s.enterFor(somebody("b"), 1, false); !ok {
		t.Error("nothing is left for another user")
	}
}

func TestSlotsAllocateNothing(t *testing.T) {
	s, u := newSlots(400), somebody("a")
	s.enter(somebody("b"), 1)
	if n := testing.AllocsPerRun(100, func() {
		if held, _ := s.enter(u, 1); held {
			s.leave(u, 1)
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
