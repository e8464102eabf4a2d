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
// read of the newest revision, and periodically (wait.go). Then an era ends. All watchers end,
// requests get ErrNotReady until everything is reloaded, and no cached data is used in the next
// era.
//
// # Contents
//
//   - Entry: one version of one object, immutable (entry.go). Its labels and fields are kept
//     compactly (package attributes), its value in one of three forms (value.go). Encodings are
//     attached to it and kept within the memory budget of the server (package encodings).
//   - Snapshot: all objects of a resource at one revision, taken in constant time from
//     copy-on-write trees (snapshot.go). Older revisions are derived from newer ones by undoing
//     the changes in the log.
//   - eventLog: a ring of changes per resource. It is bounded by age and, fairly over all
//     resources, by bytes (log.go, store.go).
//   - Watcher: a cursor into the log. It costs no memory per event.
//
// # States of a watcher
//
//	initial ── state sent ──► lagging ◄──── a change that concerns it ────┐
//	                             │                                        │
//	                             ├── nothing left to read ──► active ─────┘
//	                             └── its position left the log ──► expired
//	                                 (reported to its owner, or cut while a
//	                                 client stalls the owner, cursor.go)
//
// An active watcher is armed on a group of watchers with the same interest: one name, one value of
// an indexed field, one namespace, or all. A change wakes the groups that it concerns and touches
// no other watcher. So unrelated watchers cost nothing, and a slow watcher delays no other
// (group.go). A watcher that waits in Next wakes up. For a watcher that parked in Poll, resume is
// called.
//
// Package handlers calls Stores, Snapshots and Watchers. The server runs the Cache and
// calls Ready. Entries of a resource may define other resources (load.go).
//
// # Locks
//
// The order is: Cache.mu, Store.mu, then group.mu, encodings.Ring.mu or pinnedValues.mu.
// revisionWaits.mu, readiness.mu, position.mu and olderReads.mu come after Cache.mu. No lock is
// taken while one of these is held: group.mu, wake.mu, labelMisses.mu, revisionWaits.mu,
// readiness.mu, position.mu, newestReads.mu, encodings.Ring.mu, pinnedValues.mu and the mutex of a
// valuedict.Pool.
//
// memory.Budget.Settle takes encodings.Ring.mu and Store.mu of any store, so it must not be called
// under Store.mu. Watcher.notifying is held while WatchOptions.Lost runs.
package watchcache
