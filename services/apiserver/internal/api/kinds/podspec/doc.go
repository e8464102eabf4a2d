// Package podspec sets the defaults of pods and validates them, wherever a kind embeds them: pods
// themselves, the templates of workloads, volumes, claims and lists of resources. It has no state.
// Kind declarations call it. The defaulting functions are idempotent and may run on objects that an
// older server stored.
package podspec
