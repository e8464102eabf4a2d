package watchcache_test

import (
	"fmt"
	"maps"
	"sync"
	"testing"

	"binnacle/services/apiserver/internal/watchcache"
)

// TestSetsOfRecentStrings: what is remembered changes nothing of what sets say, however
// many strings share a place, and whoever makes them.
func TestSetsOfRecentStrings(t *testing.T) {
	var recent watchcache.Recent
	var wg sync.WaitGroup
	for by := range 4 {
		wg.Go(func() {
			for i := range 1000 {
				pairs := []watchcache.Pair{
					{"", fmt.Sprint(i)}, {"app", "app"}, {"a-key-of-" + fmt.Sprint(i%100) + "-objects", ""}, {"by", fmt.Sprint(by)}, {"app", fmt.Sprintf("app-%d-x", i%70)},
				}
				want := map[string]string{}
				for _, p := range pairs {
					want[p.Key] = p.Value
				}
				s := watchcache.MakeSetLike(&recent, pairs)
				if got := maps.Collect(s.All()); !maps.Equal(got, want) {
					t.Errorf("%v, want %v", got, want)
					return
				}
			}
		})
	}
	wg.Wait()
}
