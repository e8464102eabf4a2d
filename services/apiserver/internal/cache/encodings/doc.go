// Package encodings caches encodings of objects, such as JSON, within the memory budget of the
// server. The watch cache attaches a List to each of its entries. All lists share one Ring, which
// evicts the encodings that were not read recently.
//
// # Locks
//
// The mutex of an encoding comes before Ring.mu. No lock is taken while Ring.mu is held. Ring.Get
// calls memory.Budget.EvictToFit, so it must be called without the locks that shrink functions take.
package encodings
