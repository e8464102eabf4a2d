package webhooks_test

import (
	"fmt"
	"net/http"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
)

// BenchmarkUnmatched measures the overhead of webhooks that do not match a request.
func BenchmarkUnmatched(b *testing.B) {
	server := serve(b, func(http.ResponseWriter, receivedReview) string { b.Error("the webhook was called"); return "" })
	for _, n := range []int{0, 10, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var all []*admissionv1.ValidatingWebhookConfiguration
			for i := range n {
				all = append(
					all,
					validatingConfiguration(fmt.Sprintf("w%d", i), server.clientConfig("/"), func(w *admissionv1.ValidatingWebhook) {
						w.Rules[0].Resources = []string{"secrets"}
					}),
				)
			}
			f := start(b, all...)
			r := f.request()
			if err := f.chain.Validate(b.Context(), r); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if err := f.chain.Validate(b.Context(), r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
