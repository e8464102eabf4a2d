package tokenreviews_test

import (
	"testing"
)

// BenchmarkCachedReview measures a review of a cached token with a bound object.
func BenchmarkCachedReview(b *testing.B) {
	f := newFixture(b, nil)
	f.putBoundObjects()
	token := bound()
	f.awaitTrue("kept", func() bool { return f.isCached(token) })
	b.ReportAllocs()
	for b.Loop() {
		if _, err := f.cache.Review(b.Context(), token, nil); err != nil {
			b.Fatal(err)
		}
	}
}
