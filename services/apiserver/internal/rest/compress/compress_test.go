package compress_test

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"pgregory.net/rapid"

	"binnacle/services/apiserver/internal/cache/memory"
	"binnacle/services/apiserver/internal/rest/compress"
)

// segmentKey returns the key of a segment with the given text.
func segmentKey(b []byte) (k compress.Key) {
	sum := sha256.Sum256(b)
	copy(k[:], sum[:])
	return k
}

// gunzip returns the text of a gzip stream, whose length and checksum it checks.
func gunzip(t interface{ Fatal(...any) }, b []byte) []byte {
	r, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	out, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestAnyJoinOfSegmentsIsAValidStream checks that any sequence of segments and text is a valid
// gzip stream with the right checksum.
func TestAnyJoinOfSegmentsIsAValidStream(t *testing.T) {
	cache, err := compress.New(memory.New(1<<16, nil), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		parts := rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 0, 3000), 0, 12).Draw(t, "parts")
		var out bytes.Buffer
		var want []byte
		gzipWriter := cache.NewGzipWriter(&out)
		for i, p := range parts {
			want = append(want, p...)
			var err error
			if i%3 == 0 {
				err = gzipWriter.WriteText(p)
			} else {
				err = gzipWriter.WriteSegment(segmentKey(p), func(dst []byte) ([]byte, error) { return append(dst, p...), nil })
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := gzipWriter.Close(); err != nil {
			t.Fatal(err)
		}
		if got := gunzip(t, out.Bytes()); !bytes.Equal(got, want) {
			t.Fatalf("%d parts: got a text of %d bytes after decompression, want the %d bytes of the parts", len(parts), len(got), len(want))
		}
	})
}

// TestSegmentIsCompressedOnce checks that concurrent responses share one compression of a segment.
func TestSegmentIsCompressedOnce(t *testing.T) {
	cache := newCache(t)
	text := bytes.Repeat([]byte("the same object "), 1000)
	var compressions atomic.Int32
	fill := func(dst []byte) ([]byte, error) {
		compressions.Add(1)
		return append(dst, text...), nil
	}
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			var out bytes.Buffer
			stream := cache.NewGzipWriter(&out)
			err := stream.WriteSegment(segmentKey(text), fill)
			if err == nil {
				err = stream.Close()
			}
			if err != nil {
				t.Error(err)
				return
			}
			if !bytes.Equal(gunzip(t, out.Bytes()), text) {
				t.Error("got another text after decompression, want the same")
			}
		})
	}
	wg.Wait()
	if n := compressions.Load(); n != 1 {
		t.Errorf("50 concurrent responses: got %d compressions of their segment, want 1", n)
	}
}

// TestKeysAreSecret checks that keys cannot be computed from the content of segments, so that
// clients cannot search for collisions.
func TestKeysAreSecret(t *testing.T) {
	first := newCache(t)
	second := newCache(t)
	text := []byte("the same objects")
	if first.KeyOf(text) != first.KeyOf(bytes.Clone(text)) {
		t.Error("got two keys of one content, want equal keys")
	}
	if first.KeyOf(text) == first.KeyOf(text[1:]) {
		t.Error("got one key of two contents, want different keys")
	}
	if first.KeyOf(text) == second.KeyOf(text) {
		t.Error("got the same key of one content on two servers, want different keys")
	}
	// Which names end a segment is random, so the counts are only about right.
	same, ends := 0, 0
	for i := range 4096 {
		name := fmt.Sprint(i)
		if first.EndsSegment(name, 16) {
			ends++
		}
		if first.EndsSegment(name, 16) == second.EndsSegment(name, 16) {
			same++
		}
	}
	if ends < 128 || ends > 512 || same == 4096 {
		t.Errorf("%d of 4096 names end a segment, want about 256; %d agree on both servers, want fewer than 4096", ends, same)
	}
}

// newCache returns a cache with a budget of 1 MiB.
func newCache(t *testing.T) *compress.Cache {
	t.Helper()
	cache, err := compress.New(memory.New(1<<20, nil), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	return cache
}

// TestFailedSegmentIsNotCached checks that a segment is compressed again after an error.
func TestFailedSegmentIsNotCached(t *testing.T) {
	cache := newCache(t)
	bad := errors.New("bad")
	stream := cache.NewGzipWriter(io.Discard)
	if err := stream.WriteSegment(segmentKey(nil), func([]byte) ([]byte, error) { return nil, bad }); !errors.Is(err, bad) {
		t.Errorf("fill fails: got error %v, want %v", err, bad)
	}
	if err := stream.WriteSegment(segmentKey(nil), func(b []byte) ([]byte, error) { return append(b, 'x'), nil }); err != nil {
		t.Errorf("second attempt after a failure: got error %v, want none", err)
	}
}

// BenchmarkShared measures the compression of a response with shared parts.
func BenchmarkShared(b *testing.B) {
	cache, err := compress.New(memory.New(64<<20, nil), nil)
	if err != nil {
		b.Fatal(err)
	}
	text := bytes.Repeat([]byte(`{"metadata":{"name":"pod-1","namespace":"default"},"spec":{"containers":[]}},`), 1200)
	k := segmentKey(text)
	fill := func(dst []byte) ([]byte, error) { return append(dst, text...), nil }
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if err := cache.NewGzipWriter(io.Discard).WriteSegment(k, fill); err != nil {
			b.Fatal(err)
		}
	}
}
