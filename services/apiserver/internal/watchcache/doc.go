// Package watchcache is the in-memory image of the store. It owns, for every
// resource, the present objects as bytes, their recent history and the
// watchers that follow it. It knows nothing of kinds, encodings or HTTP: a
// Resource says under which prefix its keys stand and how labels and fields
// are read from a value.
//
// # How it is fed
//
// Cache.Run loads everything below the root from its Source at one revision
// and then follows one ordered stream of batches:
//
//	cold ── load ──► following ──┬── stream lost ──► following (resumed)
//	                             ├── compacted ────► load ──► following
//	                             └── the store went back ──► not ready ── load ──► following
//
// A batch is applied to the stores it concerns, then Cache.Revision advances.
// When history was compacted before the cache saw it, the loaded state
// replaces the old one and every watcher whose position is before it ends with
// an ExpiredError, because what happened between cannot be told any more.
//
// A store that was restored from a backup tells revisions again that it told before.
// That it did is proved by what it says of the Place where the cache stands: when the
// stream is opened anew, with each read of the newest revision, and now and then
// (replaced.go). Then an era ends: all watchers end, nothing is answered (ErrNotReady)
// until everything is loaded anew, and nothing that is kept is used in the next era.
//
// # What it holds
//
//   - Entry: one version of one object, immutable; encodings are attached to it,
//     each made once and kept within the server's memory budget (encoding.go).
//   - Snapshot: all objects of a resource at one revision, taken in constant
//     time from copy-on-write trees (snapshot.go). Older revisions are made
//     from newer ones by undoing what the log remembers.
//   - the log: a ring of changes per resource, bounded in age and, fairly over all
//     resources, bytes (log.go, retention.go, bounds.go).
//   - Watcher: a cursor into the log. It costs no memory per event.
//
// # States of a watcher
//
//	initial ── state sent ──► lagging ◄──── a change that concerns it ────┐
//	                             │                                        │
//	                             ├── nothing left to read ──► active ─────┘
//	                             └── its place fell off the log ──► expired
//	                                 (told to its owner, or cut when the owner
//	                                 is held up by a client, lost.go)
//
// An active watcher is armed on a group of watchers with the same interest (one
// name, one value of an indexed field, one namespace, or all). A change wakes
// the groups that it concerns and touches no watcher of others, so it costs nothing to
// watchers of something else, and a slow watcher delays nobody (group.go). Whoever waits in
// Next wakes up; whoever has parked in Poll, and waits nowhere, is called.
//
// Handlers of the endpoints call Stores, Snapshots and Watchers; the server
// runs the Cache and asks Ready.
//
// # Selections
//
// What selectors require of one key is one term (terms.go), however often they name it, and many terms
// are found by the keys that an entry has. So looking at an entry takes a time that grows with the entry,
// not with what a client writes; a list and each watch do so for every object and change (matcher.go).
//
// # Labels
//
// Which labels are asked for nobody says beforehand. A list by a label goes through all objects,
// and it is counted how many of them in vain; once that is ten times as many as there are, those
// that have the label are put into a tree, from a state that nobody changes, and what has changed
// meanwhile is brought after (labels.go). Four labels of a resource may have one, those that save most,
// and lose it when nobody has asked for five minutes. Readers and writers find it as the indexes of fields.
//
// # Values
//
// An entry's value is kept by what it has not in common with others of the resource (package
// phrases), or compressed beside its outline (packed.go), or as it is (kept.go). Sizes count what is
// kept. Entry.Lend puts a value together in memory that serves others afterwards. From time to time
// the entries of a book that stands in the way of a new one are replaced by others that are the same
// (settle.go), which no log and no watcher tells of.
//
// # Resources that come and go
//
// Entries of a resource may define other resources (Resource.Defines). What they
// define is there, under the lock under which they are applied, before the next
// change is looked at (define.go). So the history of a defined resource is complete
// from its definition on, on every replica and after a restart. One that is defined
// otherwise than before begins anew: its watchers end, and who holds its former
// Store reads the new one. Values that belong to no resource are kept until one
// claims them.
//
// # Locks
//
// In this order: Cache.mu, Store.mu, then group.mu, ring.mu or pinned.mu; waits.mu,
// readiness.mu, position.mu and olderReads.mu after Cache.mu; an encoding's mutex before ring.mu. Nothing is taken while one of
// group.mu, wake.mu, wantedLabels.mu, waits.mu, readiness.mu, position.mu, reads.mu, ring.mu, pinned.mu and that of a phrases.Shelf is held. memory.Budget.Settle
// takes ring.mu and Store.mu of any store, so it is not called under Store.mu.
// Watcher.telling is held while WatchOptions.Lost runs.
package watchcache
