// Package memstore implements the storage contract in memory, for tests and for
// servers whose data may be lost. The data belongs to the Store and is gone when the
// process ends, so no two processes can share it.
//
// One mutex guards a B-tree of the newest version of each key, each linked to the
// versions before it, and the history: one change per revision. Compact drops the oldest
// of both. A watch follows the history as a linked list and takes no lock, so it
// keeps the changes that it has not delivered yet, even when they are compacted.
//
// Package build creates a Store for --storage-backend=memory.
package memstore
