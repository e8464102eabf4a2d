package backends

import "testing"

// TestNobodyJoinsARoundThatAllHaveLeft: its end is not that of who comes afterwards.
func TestNobodyJoinsARoundThatAllHaveLeft(t *testing.T) {
	var q rounds
	left, _, _ := q.join([]byte("a"))
	ended := q.while(left)
	q.leave(left)
	if ended.Err() == nil {
		t.Error("it goes on though nobody waits")
	}
	other, at, first := q.join([]byte("b"))
	if other == left || at != 0 || !first {
		t.Fatalf("the next one is line %d of the same round: %t", at, other == left)
	}
	goesOn := q.while(other)
	if q.begin(left) && goesOn.Err() != nil {
		t.Error("the other round ends with the one that was left")
	}
	if next, _, first := q.join([]byte("c")); next != other || first {
		t.Error("who comes does not join the round that is next")
	}
	q.leave(other)
	q.leave(other)
}
