package reviews_test

import "testing"

func BenchmarkKept(b *testing.B) {
	r := newRig(b, true, nil)
	r.all()
	token := bound()
	r.until("kept", func() bool { return r.isKept(token) })
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.cache.Review(b.Context(), token, nil); err != nil {
			b.Fatal(err)
		}
	}
}
