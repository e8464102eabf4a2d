package webhooks_test

import (
	"fmt"
	"net/http"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// BenchmarkUnmatchedWebhooks measures the overhead of webhooks that do not match a request.
func BenchmarkUnmatchedWebhooks(b *testing.B) {
	server := serve(b, func(http.ResponseWriter, receivedReview) string { b.Error("the webhook was called"); return "" })
	for _, webhookCount := range []int{0, 10, 1000} {
		b.Run(fmt.Sprint(webhookCount), func(b *testing.B) {
			var configurations []*admissionregistrationv1.ValidatingWebhookConfiguration
			for i := range webhookCount {
				configurations = append(
					configurations,
					validatingConfiguration(fmt.Sprintf("w%d", i), server.clientConfig("/"), func(w *admissionregistrationv1.ValidatingWebhook) {
						w.Rules[0].Resources = []string{"secrets"}
					}),
				)
			}
			fixture := start(b, configurations...)
			req := fixture.request()
			if err := fixture.chain.Validate(b.Context(), req); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if err := fixture.chain.Validate(b.Context(), req); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
