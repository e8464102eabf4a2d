package valuedict_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"binnacle/services/apiserver/internal/cache/valuedict"
)

// template makes values that differ in a name, an ID and a few settings.
type template struct{ head, middle, tail string }

func newTemplate(r *rand.Rand, size int) template {
	text := func(n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(' ' + r.IntN(95))
		}
		return string(b)
	}
	return template{text(size / 4), text(size / 2), text(size / 4)}
}

func (t template) value(r *rand.Rand, i int) []byte {
	return fmt.Appendf(nil, "name-%d %s uid %016x %s setting %08x %s", i, t.head, r.Uint64(), t.middle, r.Uint32(), t.tail)
}

// packed is a value that was packed, maybe.
type packed struct {
	value, small []byte
	book         *valuedict.Book
}

// all is how many bytes all values have, where nothing else is said.
const all = 8 << 20

func pack(s *valuedict.Shelf, value []byte) packed {
	small, book := s.Pack(value, all)
	return packed{value, small, book}
}

func (p packed) check(t interface{ Fatalf(string, ...any) }) {
	if p.book == nil {
		if p.small != nil {
			t.Fatalf("packed with no book")
		}
		return
	}
	if n := valuedict.Size(p.small); n != len(p.value) {
		t.Fatalf("a value of %d bytes has the size %d", len(p.value), n)
	}
	before := []byte("before")
	if got := p.book.Append(before, p.small); !bytes.Equal(got, append(before, p.value...)) {
		t.Fatalf("%q became %q", p.value, got)
	}
}

// Values of one template are a fraction of what they were, from the third on or so.
func TestTemplates(t *testing.T) {
	r := rand.New(rand.NewPCG(20261125, 1))
	for _, n := range []int{1, 3, 20} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			var s valuedict.Shelf
			var templates []template
			for range n {
				templates = append(templates, newTemplate(r, 4000))
			}
			var all []packed
			raw := 0
			for i := range 2000 {
				p := pack(&s, templates[i%n].value(r, i))
				if i >= 1000 && len(p.small) > len(p.value)/10 {
					t.Fatalf("the %d-th value of %d bytes takes %d", i, len(p.value), len(p.small))
				}
				if p.book == nil {
					raw++
				}
				all = append(all, p)
			}
			if raw > 100+10*n {
				t.Errorf("%d values were kept as they are", raw)
			}
			for _, p := range all {
				p.check(t)
			}
		})
	}
}

// What has nothing in common stays as it is, and teaches nothing to the book.
func TestNoise(t *testing.T) {
	r := rand.New(rand.NewPCG(20261125, 2))
	var s valuedict.Shelf
	for range 3000 {
		value := make([]byte, 200+r.IntN(2000))
		for i := range value {
			value[i] = byte(r.Uint32())
		}
		if p := pack(&s, value); p.book != nil {
			t.Fatalf("noise of %d bytes became %d", len(value), len(p.small))
		}
	}
	tm := newTemplate(r, 3000)
	for i := range 2000 {
		p := pack(&s, tm.value(r, i))
		p.check(t)
		if i == 1999 && p.book == nil {
			t.Error("after noise no template is learnt any more")
		}
	}
}

// Books are followed by others when templates change, what was packed stays good, and no more
// than a few are in use.
func TestBooksFollow(t *testing.T) {
	r := rand.New(rand.NewPCG(20261125, 3))
	var s valuedict.Shelf
	var kept []packed
	books := map[*valuedict.Book]bool{}
	for range 1000 { // 4 MB of templates
		tm := newTemplate(r, 4000)
		for i := range 4 {
			p := pack(&s, tm.value(r, i))
			if p.book != nil && !books[p.book] {
				books[p.book] = true
				kept = append(kept, p)
			}
		}
	}
	// Two that were small, and four.
	if len(books) != 6 {
		t.Errorf("%d books are in use", len(books))
	}
	for _, p := range kept {
		p.check(t)
	}
	if crowd := s.Tidy(all); len(crowd) != 3 {
		t.Errorf("%d books stand in the way of another", len(crowd))
	}
	if crowd := s.Tidy(all); len(crowd) != 0 {
		t.Errorf("%d books stand in the way, where no other is wanted", len(crowd))
	}
	kept, books = nil, nil
	runtime.GC()
	tm, good := newTemplate(r, 4000), 0
	for i := range 4000 {
		if p := pack(&s, tm.value(r, i)); p.book != nil {
			p.check(t)
			good++
		}
		if more := newTemplate(r, 4000); i%4 == 0 {
			pack(&s, more.value(r, i))
			pack(&s, more.value(r, i))
		}
	}
	if good < 2000 {
		t.Errorf("only %d of 4000 were packed once the old books were not in use any more", good)
	}
}

// Two large values that are the same do not fill a book.
func TestLargePhrases(t *testing.T) {
	r := rand.New(rand.NewPCG(20261125, 5))
	var s valuedict.Shelf
	tm, good := newTemplate(r, 4000), 0
	for i := range 200 {
		large := newTemplate(r, 50_000)
		for range 2 {
			pack(&s, large.value(r, i)).check(t)
		}
		p := pack(&s, tm.value(r, i))
		if p.check(t); p.book != nil {
			good++
		}
	}
	if good < 160 {
		t.Errorf("%d of 200 of a template were packed", good)
	}
}

// Whatever values are, they come back.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s valuedict.Shelf
		parts := rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 0, 300), 1, 12).Draw(t, "parts")
		var all []packed
		for range rapid.IntRange(1, 60).Draw(t, "values") {
			var value []byte
			for _, i := range rapid.SliceOfN(rapid.IntRange(0, len(parts)-1), 0, 12).Draw(t, "of") {
				value = append(value, parts[i]...)
			}
			all = append(all, pack(&s, value))
		}
		for _, p := range all {
			p.check(t)
		}
	})
}

// Many pack and read at once.
func TestAtOnce(t *testing.T) {
	var s valuedict.Shelf
	var all sync.WaitGroup
	for g := range 4 {
		all.Go(func() {
			r := rand.New(rand.NewPCG(20261125, uint64(g)))
			var last packed
			for range 60 {
				tm := newTemplate(r, 2000)
				for i := range 10 {
					p := pack(&s, tm.value(r, i))
					p.check(t)
					last.check(t)
					last = p
				}
			}
		})
	}
	all.Wait()
}

func FuzzShelf(f *testing.F) {
	f.Add([]byte(strings.Repeat("one of many values\x00", 200)), byte(16))
	f.Fuzz(func(t *testing.T, text []byte, n byte) {
		var s valuedict.Shelf
		size := max(1, len(text)/max(1, int(n)))
		for range 3 {
			for part := text; len(part) > 0; part = part[min(size, len(part)):] {
				value := bytes.Repeat(part[:min(size, len(part))], 3)
				pack(&s, value).check(t)
			}
		}
	})
}

func benchmarkShelf(b *testing.B) (*valuedict.Shelf, [][]byte, []packed) {
	r := rand.New(rand.NewPCG(20261125, 9))
	s := &valuedict.Shelf{}
	tm := newTemplate(r, 4400)
	var values [][]byte
	var all []packed
	for i := range 1000 {
		values = append(values, tm.value(r, i))
		if p := pack(s, values[i]); p.book != nil {
			all = append(all, p)
		}
	}
	b.ReportAllocs()
	b.ResetTimer()
	return s, values, all
}

func BenchmarkPack(b *testing.B) {
	s, values, _ := benchmarkShelf(b)
	for i := range b.N {
		s.Pack(values[i%len(values)], all)
	}
}

func BenchmarkAppend(b *testing.B) {
	_, _, all := benchmarkShelf(b)
	var buf []byte
	for i := range b.N {
		p := &all[i%len(all)]
		buf = p.book.Append(buf[:0], p.small)
	}
}
