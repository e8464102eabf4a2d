package satoken

import "github.com/prometheus/client_golang/prometheus"

// usageMetrics holds the names and help texts of Kubernetes' counters.
var usageMetrics = map[Use]struct{ name, help string }{
	UseValid:        {"serviceaccount_valid_tokens_total", "Cumulative valid projected service account tokens used"},
	UseStale:        {"serviceaccount_stale_tokens_total", "Cumulative stale projected service account tokens used"},
	UseLegacy:       {"serviceaccount_legacy_tokens_total", "Cumulative legacy service account tokens used"},
	UseLegacyAuto:   {"serviceaccount_legacy_auto_token_uses_total", "Cumulative auto-generated legacy tokens used"},
	UseLegacyManual: {"serviceaccount_legacy_manual_token_uses_total", "Cumulative manually created legacy tokens used"},
	UseLegacyInvalid: {"serviceaccount_invalid_legacy_auto_token_uses_total",
		"Cumulative invalid auto-generated legacy tokens used"},
}

// CountUses registers counters for some uses of tokens and returns a function for Config.Observe.
// Other uses are not counted.
func CountUses(registerer prometheus.Registerer, uses ...Use) func(Use) {
	counters := map[Use]prometheus.Counter{}
	for _, use := range uses {
		m := usageMetrics[use]
		counters[use] = prometheus.NewCounter(prometheus.CounterOpts{Name: m.name, Help: "[ALPHA] " + m.help})
		registerer.MustRegister(counters[use])
	}
	return func(u Use) {
		if c := counters[u]; c != nil {
			c.Inc()
		}
	}
}
