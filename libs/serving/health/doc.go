// Package health holds the checks of a process and serves them as /healthz,
// /livez and /readyz, in the texts that Kubernetes components answer with.
//
// Checks are registered in order, each for some or all endpoints; "ping" comes
// first without being registered. During the grace period after the start the
// checks of /livez are not asked, so that a slow start is not mistaken for a
// hang; /healthz and /readyz know no grace.
//
// Anybody may ask, as often as they like: what an answer repeats of a question is
// bounded, and a check that costs something is made with Shared.
//
// The reason of a failure is withheld on the endpoints themselves, which are
// public, and told by the endpoint of the single check, /readyz/<check>. It is
// logged when the set of failing checks changes.
package health
