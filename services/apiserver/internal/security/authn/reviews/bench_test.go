package reviews_test

import (
	"testing"

	"binnacle/services/apiserver/internal/security/authn/reviews"
)

func BenchmarkCachedReview(b *testing.B) {
	r := newFixture(b, true, nil)
	r.all()
	token := bound()
	ctx := reviews.WithConnection(b.Context(), nil)
	r.until("kept", func() bool { return r.isCached(token) })
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.cache.Review(ctx, token, nil); err != nil {
			b.Fatal(err)
		}
	}
}
