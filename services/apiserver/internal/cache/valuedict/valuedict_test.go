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

// template generates values that differ in a name, an ID and a few settings.
type template struct{ head, middle, tail string }

// newTemplate returns a template of random text.
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

// value returns the i-th value of the template.
func (t template) value(r *rand.Rand, i int) []byte {
	return fmt.Appendf(nil, "name-%d %s uid %016x %s setting %08x %s", i, t.head, r.Uint64(), t.middle, r.Uint32(), t.tail)
}

// packed is the result of Pack. The dictionary is nil if compressing did not pay.
type packed struct {
	value, compressed []byte
	dict              *valuedict.Dictionary
}

// defaultTotalBytes is the total size of values that tests declare unless they vary it.
const defaultTotalBytes = 8 << 20

// packDefault compresses a value with the default total size.
func packDefault(s *valuedict.Pool, value []byte) packed {
	small, dict := s.Pack(value, defaultTotalBytes)
	return packed{value, small, dict}
}

// wantValues checks that the compressed value has the original size and content.
func (p packed) wantValues(t interface{ Fatalf(string, ...any) }) {
	if p.dict == nil {
		if p.compressed != nil {
			t.Fatalf("got a packed value without a dictionary, want one")
		}
		return
	}
	if n := valuedict.Size(p.compressed); n != len(p.value) {
		t.Fatalf("got size %d, want %d", n, len(p.value))
	}
	before := []byte("before")
	if got := p.dict.Append(before, p.compressed); !bytes.Equal(got, append(before, p.value...)) {
		t.Fatalf("got %q, want %q", got, p.value)
	}
}

// TestValuesOfOneTemplateArePacked checks that values of one template shrink to a fraction, after
// the first few.
func TestValuesOfOneTemplateArePacked(t *testing.T) {
	r := rand.New(rand.NewPCG(20261125, 1))
	for _, values := range []int{1, 3, 20} {
		t.Run(fmt.Sprint(values), func(t *testing.T) {
			var s valuedict.Pool
			var templates []template
			for range values {
				templates = append(templates, newTemplate(r, 4000))
			}
			var all []packed
			raw := 0
			for i := range 2000 {
				p := packDefault(&s, templates[i%values].value(r, i))
				if i >= 1000 && len(p.compressed) > len(p.value)/10 {
					t.Fatalf("value %d of %d bytes takes %d, want at most a tenth", i, len(p.value), len(p.compressed))
				}
				if p.dict == nil {
					raw++
				}
				all = append(all, p)
			}
			if raw > 100+10*values {
				t.Errorf("%d values were not packed, want at most %d", raw, 100+10*values)
			}
			for _, p := range all {
				p.wantValues(t)
			}
		})
	}
}

// TestRandomValuesAreNotPacked checks that values without shared text are not compressed and add no
// sequences.
func TestRandomValuesAreNotPacked(t *testing.T) {
	random := rand.New(rand.NewPCG(20261125, 2))
	var pool valuedict.Pool
	for range 3000 {
		value := make([]byte, 200+random.IntN(2000))
		for i := range value {
			value[i] = byte(random.Uint32())
		}
		if p := packDefault(&pool, value); p.dict != nil {
			t.Fatalf("random value of %d bytes: got it packed to %d, want it unpacked", len(value), len(p.compressed))
		}
	}
	tm := newTemplate(random, 3000)
	for i := range 2000 {
		p := packDefault(&pool, tm.value(random, i))
		p.wantValues(t)
		if i == 1999 && p.dict == nil {
			t.Error("template after random values: got it unpacked, want it packed")
		}
	}
}

// TestDictionariesFollowTemplates checks that new dictionaries follow when templates change. Values
// of older dictionaries stay readable, and the number of dictionaries in use is limited.
func TestDictionariesFollowTemplates(t *testing.T) {
	random := rand.New(rand.NewPCG(20261125, 3))
	var pool valuedict.Pool
	var kept []packed
	dicts := map[*valuedict.Dictionary]bool{}
	for range 1000 { // 4 MB of templates
		text := newTemplate(random, 4000)
		for i := range 4 {
			p := packDefault(&pool, text.value(random, i))
			if p.dict != nil && !dicts[p.dict] {
				dicts[p.dict] = true
				kept = append(kept, p)
			}
		}
	}
	// Two small ones and four of full size.
	if len(dicts) != 6 {
		t.Errorf("%d dictionaries are in use, want 6", len(dicts))
	}
	for _, p := range kept {
		p.wantValues(t)
	}
	if blocking := pool.Compact(defaultTotalBytes); len(blocking) != 3 {
		t.Errorf("%d dictionaries prevent a new one, want 3", len(blocking))
	}
	if blocking := pool.Compact(defaultTotalBytes); len(blocking) != 0 {
		t.Errorf("%d dictionaries prevent a new one that was not requested, want 0", len(blocking))
	}
	kept = nil
	dicts = nil
	runtime.GC()
	text := newTemplate(random, 4000)
	packedCount := 0
	for i := range 4000 {
		if p := packDefault(&pool, text.value(random, i)); p.dict != nil {
			p.wantValues(t)
			packedCount++
		}
		if more := newTemplate(random, 4000); i%4 == 0 {
			packDefault(&pool, more.value(random, i))
			packDefault(&pool, more.value(random, i))
		}
	}
	if packedCount < 2000 {
		t.Errorf("%d of 4000 values were packed after the old dictionaries were freed, want at least 2000", packedCount)
	}
}

// TestLargeEqualValuesDoNotFillDictionary checks that pairs of equal large values do not fill a
// dictionary.
func TestLargeEqualValuesDoNotFillDictionary(t *testing.T) {
	r := rand.New(rand.NewPCG(20261125, 5))
	var s valuedict.Pool
	tm := newTemplate(r, 4000)
	good := 0
	for i := range 200 {
		large := newTemplate(r, 50_000)
		for range 2 {
			packDefault(&s, large.value(r, i)).wantValues(t)
		}
		p := packDefault(&s, tm.value(r, i))
		p.wantValues(t)
		if p.dict != nil {
			good++
		}
	}
	if good < 160 {
		t.Errorf("%d of 200 values of a template were packed, want at least 160", good)
	}
}

// TestUnpackedValueEqualsPackedOne checks that every value is uncompressed to its original.
func TestUnpackedValueEqualsPackedOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s valuedict.Pool
		parts := rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 0, 300), 1, 12).Draw(t, "parts")
		var all []packed
		for range rapid.IntRange(1, 60).Draw(t, "values") {
			var value []byte
			for _, i := range rapid.SliceOfN(rapid.IntRange(0, len(parts)-1), 0, 12).Draw(t, "of") {
				value = append(value, parts[i]...)
			}
			all = append(all, packDefault(&s, value))
		}
		for _, p := range all {
			p.wantValues(t)
		}
	})
}

// TestConcurrentlyPackedValuesAreCorrect checks that a pool supports concurrent compressing and unpacking.
func TestConcurrentlyPackedValuesAreCorrect(t *testing.T) {
	var s valuedict.Pool
	var all sync.WaitGroup
	for g := range 4 {
		all.Go(func() {
			r := rand.New(rand.NewPCG(20261125, uint64(g)))
			var last packed
			for range 60 {
				tm := newTemplate(r, 2000)
				for i := range 10 {
					p := packDefault(&s, tm.value(r, i))
					p.wantValues(t)
					last.wantValues(t)
					last = p
				}
			}
		})
	}
	all.Wait()
}

// FuzzPack checks that values of repeated parts are uncompressed to their originals.
func FuzzPack(f *testing.F) {
	f.Add([]byte(strings.Repeat("one of many values\x00", 200)), byte(16))
	f.Fuzz(func(t *testing.T, text []byte, n byte) {
		var s valuedict.Pool
		size := max(1, len(text)/max(1, int(n)))
		for range 3 {
			for part := text; len(part) > 0; part = part[min(size, len(part)):] {
				value := bytes.Repeat(part[:min(size, len(part))], 3)
				packDefault(&s, value).wantValues(t)
			}
		}
	})
}

// benchmarkPool returns a pool, the values of one template and their compressed forms.
func benchmarkPool(b *testing.B) (*valuedict.Pool, [][]byte, []packed) {
	r := rand.New(rand.NewPCG(20261125, 9))
	pool := &valuedict.Pool{}
	tm := newTemplate(r, 4400)
	var values [][]byte
	var all []packed
	for i := range 1000 {
		values = append(values, tm.value(r, i))
		if p := packDefault(pool, values[i]); p.dict != nil {
			all = append(all, p)
		}
	}
	b.ReportAllocs()
	b.ResetTimer()
	return pool, values, all
}

// BenchmarkPack measures compression with a full dictionary.
func BenchmarkPack(b *testing.B) {
	s, values, _ := benchmarkPool(b)
	for i := range b.N {
		s.Pack(values[i%len(values)], defaultTotalBytes)
	}
}

// BenchmarkAppend measures decompression.
func BenchmarkAppend(b *testing.B) {
	_, _, all := benchmarkPool(b)
	var buf []byte
	for i := range b.N {
		p := &all[i%len(all)]
		buf = p.dict.Append(buf[:0], p.compressed)
	}
}
