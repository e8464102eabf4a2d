// Package watchcache is the in-memory image of the store. For every resource it owns the current
// objects as bytes, their recent history and the watchers that follow it. It does not know about
// kinds, encodings or HTTP. A Resource states the prefix of its keys and how to read labels and
// fields from a value.
//
// # Data flow
//
// Cache.Run loads everything below the root from its Source at one revision. Then it follows one
// ordered stream of batches:
//
//	cold ── load ──► following ──┬── stream lost ──► following (resumed)
//	                             ├── compacted ────► load ──► following
//	                             └── revision went backwards ──► not ready ── load ──► following
//
// A batch is applied to the stores that it concerns, then Cache.Revision advances. If history was
// compacted before the cache saw it, the loaded state replaces the old one. Every watcher with an
// earlier position then ends with an ExpiredError, because the changes in between are unknown.
//
// A store that was restored from a backup assigns the same revisions again. The cache detects this
// by what the store reports about the position of the cache: when the stream reopens, with each
// read of the newest revision, and periodically (wait.go). Then an incarnation ends. All watchers end,
// requests get ErrNotReady until everything is reloaded, and no cached data is used in the next
// incarnation.
//
// # Contents
//
//   - Store: the image of all objects of a resource, and the ring of its recent changes (store.go).
//     Package objects holds both. The ring is bounded by age and, fairly over all resources, by
//     bytes (history.go).
//   - Snapshot: all objects of a resource at one revision, taken in constant time (snapshot.go).
//     Older ones result from undoing changes (history.go).
//   - Watcher: a cursor into the changes (watcher.go, cursor.go). It costs no memory per event.
//
// # Defined resources
//
// Entries of a resource may define other resources (ResourceConfig.DefinedResource, load.go). A
// defined resource exists, under the same lock, before the next change is applied. So its history
// is complete from its definition on, on every replica and after a restart. If a definition
// changes, the resource starts over: its watchers end, and callers that hold the old Store read the
// new one. Values that belong to no resource are kept until a resource claims them.
//
// # States of a watcher
//
//	initial ── state sent ──► lagging ◄──── a change that concerns it ────┐
//	                             │                                        │
//	                             ├── nothing left to read ──► active ─────┘
//	                             └── its position left the log ──► expired
//	                                 (returned by Next; or by OnExpired while a
//	                                 client blocks the owner, cursor.go)
//
// An active watcher waits on the wake of a group of watchers with the same scope (package watchgroup).
// A change wakes the groups that it concerns and touches no other watcher. So unrelated watchers cost
// nothing, and a slow watcher delays no other. A watcher that waits in Next continues. For a watcher
// that parked in Poll, resume is called.
//
// Package handlers calls Stores, Snapshots and Watchers. The server runs the Cache and
// calls Ready.
//
// # Locks
//
// The order is: Cache.mu, Store.mu, then those of packages watchgroup, objects, encodings
// and valuedict. revisionWaits.mu, readiness.mu, position.mu and those of package sharedreads come
// after Cache.mu. No lock is acquired while one that comes after Cache.mu or Store.mu is held.
//
// memory.Budget.EvictToFit takes encodings.Ring.mu and Store.mu of any store, so it must not be called
// under Store.mu. Watcher.notifying is held while WatchOptions.OnExpired runs.
package watchcache
