// Package webhooks implements the admission plugins that call webhooks. Mutating webhooks are
// called in order and may patch the object. Validating webhooks are called concurrently.
//
//	configurations ─► current: compiled hooks in a matcher.Index, rebuilt when a
//	                  configuration changes
//	request ─► Candidates ─► Selects ─► conditions ─► call
//	call    ─► breaker: open? ─► client ─► AdmissionReview v1 or v1beta1 ─► response
//
// Each request reads the configurations from the watch cache, so a write that this replica
// acknowledged takes effect at once. Before the cache is loaded, all requests are rejected. Package
// build adds the plugins to the chain.
//
// A breaker opens after three consecutive failures to connect to a webhook. Matching requests are
// then decided at once by the failurePolicy, and the webhook is probed every second until it can be
// reached. A request that reached the webhook never opens a breaker, whatever the response. Writes
// of the server itself call webhooks, except for those that its readiness waits for, so that no
// webhook can prevent the start of the server.
package webhooks
