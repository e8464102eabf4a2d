// Package podspec fills what clients leave out of pods, wherever a kind embeds
// them: pods themselves, the templates of workloads, volumes, claims and lists
// of resources. It keeps no state; the files of the kinds call it from their
// Default. Every function may run any number of times on an object, also on one
// that was stored by an older server, and changes nothing the second time.
package podspec
