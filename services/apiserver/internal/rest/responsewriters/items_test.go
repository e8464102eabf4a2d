package responsewriters_test

import (
	"errors"
	"fmt"
	"testing"

	"binnacle/services/apiserver/internal/cache/objects"
	"binnacle/services/apiserver/internal/rest/responsewriters"
)

// TestEachStopsAtError checks that Each visits objects in order and stops at the first error.
func TestEachStopsAtError(t *testing.T) {
	for n := range 20 {
		l := &responsewriters.List{}
		for i := range n {
			l.Items = append(l.Items, objects.Uncached(fmt.Sprint(i), make([]byte, i*40)))
		}
		for fails := range n + 1 {
			stop := errors.New("stop")
			seen := 0
			err := l.Each(func(e *objects.Entry) error {
				if e.Key() != fmt.Sprint(seen) {
					t.Fatalf("got object %s of %d, want number %d", e.Key(), n, seen)
				}
				seen++
				if seen > fails {
					return stop
				}
				return nil
			})
			if fails == n && (err != nil || seen != n) || fails < n && (!errors.Is(err, stop) || seen != fails+1) {
				t.Errorf("failure at %d: visited %d of %d, got error %v, want the end at the failure", fails, seen, n, err)
			}
		}
	}
}
