//go:build !race

package valuedict_test

import (
	"math/rand/v2"
	"runtime"
	"testing"

	"binnacle/services/apiserver/internal/cache/valuedict"
)

// Books are a part of what there is, and are given up when that is gone.
func TestBooksAreSmallWhereValuesAreFew(t *testing.T) {
	r := rand.New(rand.NewPCG(20261125, 4))
	for _, c := range []struct{ all, most int64 }{{1 << 10, 0}, {200 << 10, 16 << 10}, {1 << 20, 64 << 10}, {3 << 20, 256 << 10}} {
		var s valuedict.Shelf
		most := int64(0)
		for i := range 400 {
			tm := newTemplate(r, 4000)
			for range 3 {
				if _, book := s.Pack(tm.value(r, i), c.all); book != nil {
					most = max(most, book.Takes())
				}
			}
		}
		if most != c.most {
			t.Errorf("where all values have %d bytes a book takes %d, want %d", c.all, most, c.most)
		}
		s.Tidy(1 << 10)
		tm := newTemplate(r, 4000)
		for i := range 100 {
			if _, book := s.Pack(tm.value(r, i), 1<<10); book != nil {
				t.Fatalf("with %d bytes left of %d there is a book", 1<<10, c.all)
			}
		}
	}
}

// A book gives way to another of its size where values are too few for more.
func TestBookFollowsWhereValuesAreFew(t *testing.T) {
	r := rand.New(rand.NewPCG(20261125, 6))
	for _, all := range []int64{200 << 10, 400 << 10, 3 << 20} {
		var s valuedict.Shelf
		for i := range 300 {
			tm := newTemplate(r, 4000)
			for range 3 {
				s.Pack(tm.value(r, i), all)
			}
		}
		tm, good := newTemplate(r, 4000), 0
		for i := range 600 {
			s.Tidy(all)
			if _, book := s.Pack(tm.value(r, i), all); book != nil {
				good++
			}
			if i%20 == 0 {
				runtime.GC()
			}
		}
		if good < 300 {
			t.Errorf("where all values have %d bytes, %d of 600 of a new template are packed", all, good)
		}
	}
}
