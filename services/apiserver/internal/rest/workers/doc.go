// Package workers runs short functions in goroutines that it reuses, in round-robin order of the
// users that they run for. A watch whose handler has returned sends its events in such a function.
//
// A Pool is safe for concurrent use. It starts goroutines on demand and ends idle ones.
package workers
