// Package storage is the contract between the API server and the store of its objects.
// Implementations live below it (etcd, memstore). storagetest is the conformance suite for all
// implementations.
//
// A store maps keys ("/registry/pods/default/a") to opaque bytes and numbers its changes: each
// change of any key has its own revision, greater than all earlier ones. The package does not know
// about kinds, encodings or HTTP.
package storage

import (
	"context"
	"time"
)

// KeyValue is one stored value.
type KeyValue struct {
	Key   string
	Value []byte
	// ModRevision is the revision of the last change of this key.
	ModRevision int64
	// CreateRevision is the revision at which the key was created.
	CreateRevision int64
	// Seal is nil if the store holds exactly Value.
	Seal *Seal
}

// ListOptions selects what List returns.
type ListOptions struct {
	// Revision is the revision to read at; 0 reads the newest, linearizably.
	Revision int64
	// StartKey is the first key to return, if it is greater than the prefix.
	StartKey string
	// Limit bounds the number of items; 0 means all.
	Limit int64
	// Average is the expected size in bytes of a key with its value; 0 if unknown. It only helps to
	// choose the size of reads.
	Average int
}

// ListResult is a page of values in the order of their keys.
type ListResult struct {
	Items []KeyValue
	// Revision is the store's revision that the page was read at.
	Revision int64
	// Count is the number of keys from StartKey (or the start of the prefix) on, including items
	// beyond the limit.
	Count int64
	// HasMore is whether the limit left items out.
	HasMore bool
	// Store is the identity of the store, or 0 if it has none. A store with another identity has
	// another history.
	Store uint64
}

// EventType is the effect of a change on its key.
type EventType uint8

// Types of changes.
const (
	Created EventType = iota + 1
	Updated
	Deleted
)

// Event is one change.
type Event struct {
	Type EventType
	Key  string
	// Revision is the revision of the change.
	Revision int64
	// CreateRevision is the revision at which the key was created; 0 for Deleted.
	CreateRevision int64
	// Value is the value after the change; nil for Deleted. The previous value is omitted:
	// followers of the changes have it.
	Value []byte
	// Seal is nil if the store holds exactly Value.
	Seal *Seal
}

// Batch is one delivery of a watch: the events of one or more whole revisions in order, or none,
// and the revision up to which everything has been delivered.
type Batch struct {
	Events   []Event
	Revision int64
}

// HistoryReader is a store that may read history faster than through a watch.
type HistoryReader interface {
	// Changes reads the changes of keys that start with prefix, after one revision up to another,
	// which the store has reached. It returns whole revisions until their values take the given
	// number of bytes. The revision of the batch is the last one read. ok is false if the store
	// cannot do this. *CompactedError is as for a watch.
	Changes(ctx context.Context, prefix string, after, until int64, bytes int) (_ Batch, ok bool, err error)
}

// WriteOptions holds options of a write.
type WriteOptions struct {
	// TTL makes the value expire; 0 keeps it. Lifetimes may be rounded up so that writes share a
	// lease.
	TTL time.Duration
	// Preconditions holds preconditions. Unless all of them hold at the write's own revision,
	// nothing is written and the error is *PreconditionError. Errors about the key itself take
	// precedence.
	Preconditions []Precondition
}

// Precondition requires a CreateRevision of a key or, with Prefix, of each key that
// starts with it. 0 requires that there is no such key.
type Precondition struct {
	Key            string
	Prefix         bool
	CreateRevision int64
}

// Watcher is a running watch. Receive from Batches until it is closed, then call Err for the
// reason: nil after Stop or the end of the context; *CompactedError if the start revision is no
// longer kept; *ReplacedError, see Resume.
type Watcher interface {
	Batches() <-chan Batch
	Err() error
	// Progress requests a Batch that carries the current revision even if nothing changes. It does
	// not wait for the Batch.
	Progress(ctx context.Context) error
	Stop()
}

// Interface is the contract of a store. All methods are safe for concurrent use. Every error is one
// of those in errors.go, or a context error.
type Interface interface {
	// Get reads one key: linearizably if revision is 0, and as of that revision otherwise. A
	// missing key is ErrNotFound, a corrupt value *CorruptObjectError. Lists return this error
	// beside the key. The second result is the store's revision of the read, also with these
	// errors.
	Get(ctx context.Context, key string, revision int64) (KeyValue, int64, error)
	// List reads the keys that start with prefix.
	List(ctx context.Context, prefix string, opts ListOptions) (ListResult, error)
	// Create writes a key that must not exist, and returns its revision. Otherwise the error is
	// *ExistsError.
	Create(ctx context.Context, key string, value []byte, opts WriteOptions) (int64, error)
	// Update replaces the value if the key's ModRevision is expected, and returns the new one.
	// Otherwise the error is *ConflictError with the live value, or ErrNotFound.
	Update(ctx context.Context, key string, value []byte, expected int64, opts WriteOptions) (int64, error)
	// Delete removes the key if its ModRevision is expected, and returns the revision of the
	// deletion. Otherwise it returns the errors of Update. Preconditions is as in WriteOptions.
	Delete(ctx context.Context, key string, expected int64, preconditions ...Precondition) (int64, error)
	// Watch delivers the changes of keys that start with prefix, after the given revision. It waits
	// for a future revision. It survives outages of the store. Delivered values may be shared and
	// must not be changed.
	Watch(ctx context.Context, prefix string, after int64) (Watcher, error)
	// Resume is Watch from the position of a reader that has followed the changes. It ends with
	// *ReplacedError if the store's history does not contain that position or, after an outage, the
	// changes delivered since. The error comes before any delivery, unless history there is
	// compacted.
	Resume(ctx context.Context, prefix string, from Position) (Watcher, error)
	// VerifyHistory returns the newest revision like Revision, and checks that the store's history
	// contains a position. Otherwise the error is *ReplacedError. A position whose revision is
	// compacted, or without Last, is compared by its revision alone. So is any position by a store
	// that cannot be replaced while it is in use.
	VerifyHistory(ctx context.Context, at Position) (int64, error)
	// Revision returns the newest revision of the store, read linearizably.
	Revision(ctx context.Context) (int64, error)
	// Compact drops history before the revision.
	Compact(ctx context.Context, revision int64) error
}
