package sorted_test

import (
	"cmp"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"binnacle/libs/sorted"
)

// TestMapIsGoMapInOrder compares a Map with a map of Go under random changes. A copy keeps its
// contents.
func TestMapIsGoMapInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sortedMap := sorted.NewMap[int, string]()
		want := map[int]string{}
		copied := sortedMap.Copy()
		wantCopied := maps.Clone(want)
		t.Repeat(map[string]func(*rapid.T){
			"set": func(t *rapid.T) {
				key, value := rapid.IntRange(0, 40).Draw(t, "key"), rapid.String().Draw(t, "value")
				previous, replaced := sortedMap.Set(key, value)
				if wantPrevious, ok := want[key]; replaced != ok || previous != wantPrevious {
					t.Fatalf("Set(%d) = %q, %t, want %q, %t", key, previous, replaced, wantPrevious, ok)
				}
				want[key] = value
			},
			"delete": func(t *rapid.T) {
				key := rapid.IntRange(0, 40).Draw(t, "key")
				previous, deleted := sortedMap.Delete(key)
				if wantPrevious, ok := want[key]; deleted != ok || previous != wantPrevious {
					t.Fatalf("Delete(%d) = %q, %t, want %q, %t", key, previous, deleted, wantPrevious, ok)
				}
				delete(want, key)
			},
			"clear": func(t *rapid.T) {
				sortedMap.Clear()
				clear(want)
			},
			"copy": func(t *rapid.T) {
				copied = sortedMap.Copy()
				wantCopied = maps.Clone(want)
			},
			// rapid calls the action without a name after each other one, to check the invariant.
			"": func(t *rapid.T) {
				compareMap(t, "map", sortedMap, want)
				compareMap(t, "copy", copied, wantCopied)
			},
		})
	})
}

// compareMap compares a map with the expected entries by Len, Scan and Ascend.
func compareMap(t *rapid.T, name string, sortedMap sorted.Map[int, string], want map[int]string) {
	t.Helper()
	keys := slices.Sorted(maps.Keys(want))
	if sortedMap.Len() != len(want) {
		t.Fatalf("length of the %s = %d, want %d", name, sortedMap.Len(), len(want))
	}
	var scanned []int
	sortedMap.Scan(func(key int, value string) bool {
		if value != want[key] {
			t.Fatalf("value of %d in the %s = %q, want %q", key, name, value, want[key])
		}
		scanned = append(scanned, key)
		return true
	})
	if !slices.Equal(scanned, keys) {
		t.Fatalf("keys of the %s = %v, want %v", name, scanned, keys)
	}
	from := rapid.IntRange(0, 40).Draw(t, "from")
	ascended := 0
	sortedMap.Ascend(from, func(int, string) bool {
		ascended++
		return true
	})
	index, _ := slices.BinarySearch(keys, from)
	if ascended != len(keys)-index {
		t.Fatalf("%d keys of the %s are at or after %d, want %d", ascended, name, from, len(keys)-index)
	}
}

// TestSetKeepsOrderOfFunction checks that positions and iterations follow the order, and that a
// change after a copy does not change the copy.
func TestSetKeepsOrderOfFunction(t *testing.T) {
	type item struct {
		rank int
		name string
	}
	ranked := sorted.NewSet(func(a, b item) bool { return cmp.Less(a.rank, b.rank) }, 4)
	for _, rank := range []int{5, 3, 9, 1, 7, 2, 8} {
		ranked.Set(item{rank, "first"})
	}
	before := ranked.Copy()
	ranked.Load(item{10, "last"})
	if previous, replaced := ranked.Set(item{3, "second"}); !replaced || previous.name != "first" {
		t.Errorf("Set of an equal item = %v, %t, want the previous item", previous, replaced)
	}
	if _, deleted := ranked.Delete(item{rank: 5}); !deleted {
		t.Errorf("Delete of an item = %t, want true", deleted)
	}
	for name, test := range map[string]struct {
		set  sorted.Set[item]
		want []item
	}{
		"changed": {ranked, []item{{1, "first"}, {2, "first"}, {3, "second"}, {7, "first"}, {8, "first"}, {9, "first"}, {10, "last"}}},
		"copy": {before, []item{
			{1, "first"},
			{2, "first"},
			{3, "first"},
			{5, "first"},
			{7, "first"},
			{8, "first"},
			{9, "first"},
		}},
	} {
		var got []item
		test.set.Scan(func(i item) bool {
			got = append(got, i)
			return true
		})
		if !slices.Equal(got, test.want) {
			t.Errorf("items of the %s set = %v, want %v", name, got, test.want)
		}
		for i, want := range test.want {
			if atPosition, ok := test.set.GetAt(i); !ok || atPosition != want {
				t.Errorf("item %d of the %s set = %v, %t, want %v", i, name, atPosition, ok, want)
			}
			if found, ok := test.set.Get(item{rank: want.rank}); !ok || found != want {
				t.Errorf("item of rank %d of the %s set = %v, %t, want %v", want.rank, name, found, ok, want)
			}
		}
	}
	var from []int
	ranked.Ascend(item{rank: 4}, func(i item) bool {
		from = append(from, i.rank)
		return len(from) < 2
	})
	if want := []int{7, 8}; !slices.Equal(from, want) {
		t.Errorf("first two ranks from 4 = %v, want %v", from, want)
	}
}
