package satoken

import "github.com/prometheus/client_golang/prometheus"

// metricsOfUses holds counters under the names of Kubernetes.
var metricsOfUses = map[Use]struct{ name, help string }{
	UseValid:         {"serviceaccount_valid_tokens_total", "used in their time"},
	UseStale:         {"serviceaccount_stale_tokens_total", "used although they should have been renewed"},
	UseLegacy:        {"serviceaccount_legacy_tokens_total", "used and live in secrets"},
	UseLegacyAuto:    {"serviceaccount_legacy_auto_token_uses_total", "used and live in secrets that were made with their account"},
	UseLegacyManual:  {"serviceaccount_legacy_manual_token_uses_total", "used and live in secrets that somebody made"},
	UseLegacyInvalid: {"serviceaccount_invalid_legacy_auto_token_uses_total", "refused because their secret is marked invalid"},
}

// CountUses registers counters for some uses of tokens and returns a function for Config.Observe.
// Other uses are not counted.
func CountUses(r prometheus.Registerer, uses ...Use) func(Use) {
	counters := map[Use]prometheus.Counter{}
	for _, use := range uses {
		m := metricsOfUses[use]
		counters[use] = prometheus.NewCounter(prometheus.CounterOpts{Name: m.name, Help: "[ALPHA] Service account tokens that were " + m.help + "."})
		r.MustRegister(counters[use])
	}
	return func(u Use) {
		if c := counters[u]; c != nil {
			c.Inc()
		}
	}
}
