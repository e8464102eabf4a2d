package tokenreviews_test

import (
	"testing"
)

func BenchmarkCachedReview(b *testing.B) {
	r := newFixture(b, true, nil)
	r.all()
	token := bound()
	r.until("kept", func() bool { return r.isCached(token) })
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.cache.Review(b.Context(), token, nil); err != nil {
			b.Fatal(err)
		}
	}
}
