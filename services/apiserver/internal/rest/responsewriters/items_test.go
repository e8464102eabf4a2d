package responsewriters_test

import (
	"errors"
	"fmt"
	"testing"

	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/rest/responsewriters"
)

// TestEachGoesThroughAll: in order, and no further than to what fails.
func TestEachGoesThroughAll(t *testing.T) {
	for n := range 20 {
		l := &responsewriters.List{}
		for i := range n {
			l.Items = append(l.Items, watchcache.Apart(fmt.Sprint(i), make([]byte, i*40)))
		}
		for fails := range n + 1 {
			stop := errors.New("stop")
			seen := 0
			err := l.Each(func(e *watchcache.Entry) error {
				if e.Key() != fmt.Sprint(seen) {
					t.Fatalf("%s of %d is number %d", e.Key(), n, seen)
				}
				if seen++; seen > fails {
					return stop
				}
				return nil
			})
			if fails == n && (err != nil || seen != n) || fails < n && (!errors.Is(err, stop) || seen != fails+1) {
				t.Errorf("%d of %d were seen until number %d failed: %v", seen, n, fails, err)
			}
		}
	}
}
