// Package webhooks asks the admission webhooks that are configured: the mutating
// ones in order, which may patch the object, the validating ones side by side.
//
//	configurations ─► current: compiled hooks in a matcher.Index, made anew when a
//	                  configuration changed
//	request ─► Candidates ─► Selects ─► conditions ─► call
//	call    ─► breaker: open? ─► client ─► AdmissionReview v1 or v1beta1 ─► verdict
//
// Configurations are read from the watch cache with each request, so what was
// acknowledged on this replica counts from then on. Before the cache is loaded,
// everything is refused. Package build adds the plugins to the chain.
//
// A hook that cannot be reached, or does not answer in its time, three times in a
// row has its breaker opened: what it matches is then answered at once as its
// failurePolicy says, and it is asked each second, on a dry run, until it answers.
// Answers never open a breaker, whatever they say. Writes
// of the server itself are shown to webhooks, except those that its readiness waits
// for: no webhook can keep the server from starting.
package webhooks
