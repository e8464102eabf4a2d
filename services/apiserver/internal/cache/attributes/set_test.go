package attributes_test

import (
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"binnacle/services/apiserver/internal/cache/attributes"
)

// TestSetsSharingRecentStringsAreCorrect checks that the shared table of recent strings never
// changes the contents of a set, also with hash collisions and concurrent use.
func TestSetsSharingRecentStringsAreCorrect(t *testing.T) {
	var recent attributes.InternCache
	var writers sync.WaitGroup
	for by := range 4 {
		writers.Go(func() {
			for i := range 1000 {
				pairs := []attributes.Pair{
					{"", fmt.Sprint(i)},
					{"app", "app"},
					{"a-key-of-" + fmt.Sprint(i%100) + "-objects", ""},
					{"by", fmt.Sprint(by)},
					{"app", fmt.Sprintf("app-%d-x", i%70)},
				}
				want := map[string]string{}
				for _, p := range pairs {
					want[p.Key] = p.Value
				}
				s := attributes.SetFromPairsLike(&recent, pairs)
				if got := maps.Collect(s.All()); !maps.Equal(got, want) {
					t.Errorf("SetFromPairsLike(%v) = %v, want %v", pairs, got, want)
					return
				}
			}
		})
	}
	writers.Wait()
}

// TestSetReturnsItsPairs checks sets of many pairs and of long strings.
func TestSetReturnsItsPairs(t *testing.T) {
	var recent attributes.InternCache
	text := rapid.OneOf(rapid.StringN(0, 20, 20), rapid.StringN(0, 3, 3),
		rapid.Map(rapid.IntRange(0, 70_000), func(n int) string { return strings.Repeat("x", n) }))
	rapid.Check(t, func(t *rapid.T) {
		var pairs []attributes.Pair
		want := map[string]string{}
		for range rapid.IntRange(0, 300).Draw(t, "pairs") {
			p := attributes.Pair{Key: rapid.StringN(0, 10, 10).Draw(t, "key"), Value: text.Draw(t, "value")}
			pairs, want[p.Key] = append(pairs, p), p.Value
		}
		s := attributes.SetFromPairsLike(&recent, pairs)
		if got := maps.Collect(s.All()); !maps.Equal(got, want) || s.Len() != len(want) {
			t.Fatalf("SetFromPairsLike(%v) = %v with length %d, want %v", pairs, got, s.Len(), want)
		}
		for k, v := range want {
			if got, ok := s.Lookup(k); got != v || !ok {
				t.Fatalf("Lookup(%q) = %q, %v, want %q, true", k, got, ok, v)
			}
		}
		if s.Has("no key is that long") || s.Get("no key is that long") != "" {
			t.Fatal("got a key that was not added, want none")
		}
	})
}

// TestSetFromPairsKeepsLastValueOfKey checks that the last pair of a key wins, and that keys are sorted.
func TestSetFromPairsKeepsLastValueOfKey(t *testing.T) {
	type pair struct{ Key, Value string }
	set := attributes.SetFromPairs([]pair{
		{Key: "b", Value: "2"},
		{Key: "a", Value: "1"},
		{Key: "b", Value: "3"},
		{Key: "", Value: "empty"},
	})
	var all []string
	for k, v := range set.All() {
		all = append(all, k+"="+v)
	}
	if got := strings.Join(all, ","); got != "=empty,a=1,b=3" || set.Len() != 3 {
		t.Errorf("pairs = %q, length %d, want =empty,a=1,b=3, length 3", got, set.Len())
	}
	for key, want := range map[string]string{"a": "1", "b": "3", "": "empty", "c": ""} {
		v, ok := set.Lookup(key)
		if v != want || ok != (key != "c") || set.Has(key) != ok || set.Get(key) != want {
			t.Errorf("Lookup(%q) = %q, %v, want %q", key, v, ok, want)
		}
	}
	var none attributes.Set
	if none.Has("") || none.Len() != 0 || none.Get("x") != "" {
		t.Error("zero Set: got one that is not empty, want an empty one")
	}
}
