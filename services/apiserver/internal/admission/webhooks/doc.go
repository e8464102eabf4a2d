// Package webhooks implements the admission plugins that call webhooks. Mutating webhooks are
// called in order and may patch the object. Validating webhooks are called concurrently.
//
// The hooks of all configurations are compiled into a matcher.Index, which is rebuilt when a
// configuration changes. A request passes these steps for each plugin:
//
//	index.Candidates   the hooks whose rules match the resource and the operation
//	candidate.Selects  the hooks whose selectors match the namespace and the object
//	match conditions   the hooks whose CEL expressions are true
//	breaker            if it is open, the failurePolicy decides at once
//	client             sends an AdmissionReview (v1 or v1beta1) and reads the response
//
// Each request reads the configurations from the watch cache, so a write that this replica
// acknowledged takes effect at once. Before the cache is loaded, all requests are rejected. Package
// build adds the plugins to the chain.
//
// A breaker opens after three consecutive failures to connect to a webhook. Matching requests are
// then decided at once by the failurePolicy, and the webhook is probed every second until it can be
// reached. A request that reached the webhook never opens a breaker, whatever the response.
//
// Webhooks are also called for writes of the server itself, except for the writes that must
// complete before the server is ready. Otherwise, a webhook could prevent the start of the server.
package webhooks
