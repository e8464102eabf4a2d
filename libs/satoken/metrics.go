package satoken

import "github.com/prometheus/client_golang/prometheus"

// CountUses registers counters of the uses of tokens, under the names that
// Kubernetes has for them, and returns what counts one (Config.Observe).
func CountUses(r prometheus.Registerer) func(Use) {
	counters := map[Use]prometheus.Counter{}
	for use, help := range map[Use]string{
		UseValid:  "used in their time",
		UseStale:  "used although they should have been renewed",
		UseLegacy: "used and live in secrets",
	} {
		counters[use] = prometheus.NewCounter(prometheus.CounterOpts{
			Name: "serviceaccount_" + string(use) + "_tokens_total",
			Help: "[ALPHA] Service account tokens that were " + help + ".",
		})
		r.MustRegister(counters[use])
	}
	return func(u Use) { counters[u].Inc() }
}
