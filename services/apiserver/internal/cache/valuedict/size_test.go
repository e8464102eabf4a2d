//go:build !race

package valuedict_test

import (
	"math/rand/v2"
	"runtime"
	"testing"

	"binnacle/services/apiserver/internal/cache/valuedict"
)

// TestDictionarySizeFollowsValues checks that the size of dictionaries depends on the total size of
// values. They are dropped when the values are gone.
func TestDictionarySizeFollowsValues(t *testing.T) {
	random := rand.New(rand.NewPCG(20261125, 4))
	for _, test := range []struct{ totalBytes, maximum int64 }{
		{totalBytes: 1 << 10, maximum: 0},
		{totalBytes: 200 << 10, maximum: 16 << 10},
		{totalBytes: 1 << 20, maximum: 64 << 10},
		{totalBytes: 3 << 20, maximum: 256 << 10},
	} {
		var pool valuedict.Pool
		maximum := int64(0)
		for i := range 400 {
			tm := newTemplate(random, 4000)
			for range 3 {
				if _, dict := pool.Pack(tm.value(random, i), test.totalBytes); dict != nil {
					maximum = max(maximum, dict.Bytes())
				}
			}
		}
		if maximum != test.maximum {
			t.Errorf("with %d bytes of values: got a dictionary of %d bytes, want %d", test.totalBytes, maximum, test.maximum)
		}
		pool.Compact(1 << 10)
		tm := newTemplate(random, 4000)
		for i := range 100 {
			if _, dict := pool.Pack(tm.value(random, i), 1<<10); dict != nil {
				t.Fatalf("with %d bytes left of %d: got a dictionary, want none", 1<<10, test.totalBytes)
			}
		}
	}
}

// TestDictionaryIsReplacedForFewValues checks that a full dictionary is replaced by one of equal
// size when there are too few values for a larger one.
func TestDictionaryIsReplacedForFewValues(t *testing.T) {
	random := rand.New(rand.NewPCG(20261125, 6))
	for _, totalBytes := range []int64{200 << 10, 400 << 10, 3 << 20} {
		var s valuedict.Pool
		for i := range 300 {
			tm := newTemplate(random, 4000)
			for range 3 {
				s.Pack(tm.value(random, i), totalBytes)
			}
		}
		tm := newTemplate(random, 4000)
		good := 0
		for i := range 600 {
			s.Compact(totalBytes)
			if _, dict := s.Pack(tm.value(random, i), totalBytes); dict != nil {
				good++
			}
			if i%20 == 0 {
				runtime.GC()
			}
		}
		if good < 300 {
			t.Errorf("with %d bytes of values: got %d of 600 values of a new template packed, want at least 300", totalBytes, good)
		}
	}
}
