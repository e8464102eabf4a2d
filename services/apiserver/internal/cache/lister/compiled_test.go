package lister

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"binnacle/services/apiserver/internal/cache/objects"
)

// TestCompiledCompilesChangedObjectsAndKeepsCorruptOnes checks which objects Update compiles and
// keeps.
func TestCompiledCompilesChangedObjectsAndKeepsCorruptOnes(t *testing.T) {
	fixture := newFixture(t)
	var compiled, failed []string
	broken := map[string]bool{}
	c := Compiled[string]{
		Store: fixture.kind.Store,
		Compile: func(e *objects.Entry) (string, error) {
			compiled = append(compiled, e.Name())
			if broken[e.Name()] {
				return "", errors.New("corrupt " + e.Name())
			}
			return fmt.Sprint(e.Name(), e.Size()), nil
		},
		OnInvalid: func(e *objects.Entry, kept bool, _ error) { failed = append(failed, fmt.Sprint(e.Name(), kept)) },
	}
	update := func(isSelected func(*objects.Entry) bool) (values []string, err error) {
		compiled = nil
		failed = nil
		items, err := c.Update(fixture.kind.Store.Snapshot(), isSelected)
		for _, item := range items {
			values = append(values, item.Value)
		}
		if len(c.Items()) != len(items) {
			t.Errorf("got %d items, want %d", len(c.Items()), len(items))
		}
		return values, err
	}
	for _, name := range []string{"a", "b", "c"} {
		fixture.putObject("ns", name, 10)
	}
	first, err := update(nil)
	if err != nil || len(first) != 3 || !slices.Equal(compiled, []string{"a", "b", "c"}) {
		t.Fatalf("first Update = %v, %v, compiled %v, want 3 items, compiled a, b, c", first, err, compiled)
	}
	fixture.putObject("ns", "b", 20)
	if second, err := update(nil); err != nil ||
		second[0] != first[0] ||
		second[1] == first[1] ||
		!slices.Equal(compiled, []string{"b"}) {
		t.Errorf("after a change: got %v (%v), compiled %v, want only b compiled again", second, err, compiled)
	}
	broken["a"], broken["d"] = true, true
	fixture.putObject("ns", "a", 30)
	fixture.putObject("ns", "d", 10)
	if third, err := update(nil); err == nil || err.Error() != "corrupt d" || len(third) != 3 ||
		third[0] != first[0] || !slices.Equal(failed, []string{"atrue", "dfalse"}) {
		t.Errorf("with corrupt objects: got %v (%v), failures %v, want 3 values, the first kept, failures of a and d",
			third, err, failed)
	}
	only := func(e *objects.Entry) bool { return e.Name() == "c" }
	if last, err := update(only); err != nil || !slices.Equal(last, first[2:]) {
		t.Errorf("with a selection: got %v (%v), want %v", last, err, first[2:])
	}
	if all, err := update(nil); err == nil || len(all) != 2 || !slices.Equal(failed, []string{"afalse", "dfalse"}) {
		t.Errorf("values of objects that were not selected: got %v (%v), failures %v, want 2 values, failures of a and d",
			all, err, failed)
	}
}
