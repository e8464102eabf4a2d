// Package memory divides the memory budget of data that the server keeps for speed and could do
// without: the history of watches, kept encodings, older states of lists, and compressed responses.
// A process has one Budget. Each package that keeps such data registers a part, counts its bytes
// with a Quota, and provides a function that frees some of them.
//
// History has priority up to a limit of its own, because it cannot be restored. The caches have the
// rest, up to two thirds of the budget. Within that, a cache may use memory that other caches do
// not use. When memory is short, the cache that exceeds its share the most shrinks.
//
// Locks: Add only counts and may be called under any lock. EvictToFit calls the shrink function of
// any part, so it must be called without the locks that such functions acquire.
package memory
