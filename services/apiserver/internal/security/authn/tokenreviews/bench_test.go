package tokenreviews_test

import (
	"testing"

	"binnacle/services/apiserver/internal/security/authn/tokenreviews"
)

func BenchmarkCachedReview(b *testing.B) {
	r := newFixture(b, true, nil)
	r.all()
	token := bound()
	ctx := tokenreviews.WithConnection(b.Context(), nil)
	r.until("kept", func() bool { return r.isCached(token) })
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.cache.Review(ctx, token, nil); err != nil {
			b.Fatal(err)
		}
	}
}
