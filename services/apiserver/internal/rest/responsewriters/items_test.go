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
		list := &responsewriters.List{}
		for i := range n {
			list.Items = append(list.Items, objects.Uncached(fmt.Sprint(i), make([]byte, i*40)))
		}
		for failAt := range n + 1 { // n means never
			stop := errors.New("stop")
			visited := 0
			err := list.Each(func(entry *objects.Entry) error {
				if entry.Key() != fmt.Sprint(visited) {
					t.Fatalf("got object %s of %d, want number %d", entry.Key(), n, visited)
				}
				visited++
				if visited > failAt {
					return stop
				}
				return nil
			})
			wantVisited, wantErr := failAt+1, stop
			if failAt == n {
				wantVisited, wantErr = n, nil
			}
			if !errors.Is(err, wantErr) || visited != wantVisited {
				t.Errorf("%d objects, error at %d: got %d visited, error %v, want %d, error %v",
					n, failAt, visited, err, wantVisited, wantErr)
			}
		}
	}
}
