package backends

import "testing"

// Later lines do not join a group that all callers have left.
func TestAbandonedWriteGroupIsNotJoined(t *testing.T) {
	var q writeGroups
	left, _, _ := q.join([]byte("a"))
	ended := q.contextFor(left)
	q.leave(left)
	if ended.Err() == nil {
		t.Error("the context of a group without callers has not ended")
	}
	other, at, first := q.join([]byte("b"))
	if other == left || at != 0 || !first {
		t.Fatalf("next line: got index %d, same group = %t, want 0 and false", at, other == left)
	}
	goesOn := q.contextFor(other)
	if q.start(left) && goesOn.Err() != nil {
		t.Error("the next group ended with the abandoned one")
	}
	if next, _, first := q.join([]byte("c")); next != other || first {
		t.Error("a line did not join the next group")
	}
	q.leave(other)
	q.leave(other)
}
