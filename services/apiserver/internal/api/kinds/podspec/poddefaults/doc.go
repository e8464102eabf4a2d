// Package poddefaults sets the defaults of pods wherever a kind embeds them: pods themselves, the
// templates of workloads, volumes, claims and lists of resources. The functions are idempotent and
// may run on objects that an older server stored. The package has no state.
package poddefaults
