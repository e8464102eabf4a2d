// Package podspec validates pods wherever a kind embeds them: pods themselves, the templates of
// workloads, volumes, claims and lists of resources. It has no state. Kind declarations call it.
// Package poddefaults sets the defaults of the same types.
package podspec
