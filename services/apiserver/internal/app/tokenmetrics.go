package app

import (
	"github.com/prometheus/client_golang/prometheus"

	"binnacle/libs/satoken"
)

// tokenUses counts the uses of service account tokens, under the names that
// Kubernetes has for them.
func tokenUses(r prometheus.Registerer) func(satoken.Use) {
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: "[ALPHA] " + help})
		r.MustRegister(c)
		return c
	}
	counters := map[satoken.Use]prometheus.Counter{
		satoken.UseValid:  counter("serviceaccount_valid_tokens_total", "Service account tokens that were used in their time."),
		satoken.UseStale:  counter("serviceaccount_stale_tokens_total", "Service account tokens that were used although they should have been renewed."),
		satoken.UseLegacy: counter("serviceaccount_legacy_tokens_total", "Service account tokens of secrets that were used."),
	}
	return func(u satoken.Use) { counters[u].Inc() }
}
