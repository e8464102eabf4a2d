// Package storage is the contract between the API server and the store that
// holds its objects. Implementations live below it (etcd, memstore); storagetest is the
// conformance suite that every one of them runs through.
//
// A store maps keys ("/registry/pods/default/a") to opaque bytes and numbers
// its changes: each change of any key has a revision of its own, greater than
// all before it. The package knows nothing of kinds, encodings or HTTP.
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
	// CreateRevision is the revision at which the key came to be.
	CreateRevision int64
	// Seal is nil when the store has just Value.
	Seal *Seal
}

// ListOptions selects what List returns.
type ListOptions struct {
	// Revision is the revision to read at; 0 reads the newest, linearizably.
	Revision int64
	// From is the first key to return, when it is greater than the prefix.
	From string
	// Limit bounds the number of items; 0 means all.
	Limit int64
	// Average is how many bytes a key and its value are likely to take; 0 where that is
	// not known. It is for reading as much at a time as is good, no more.
	Average int
}

// ListResult is a page of values in the order of their keys.
type ListResult struct {
	Items []KeyValue
	// Revision is the store's revision that the page was read at.
	Revision int64
	// Count is the number of keys from From (or the prefix's start) on, items
	// beyond the limit included.
	Count int64
	// More tells that the limit left items out.
	More bool
	// Store is a name of the store that answered, 0 when it has none: what is of
	// another name has another history.
	Store uint64
}

// EventType says what a change did to its key.
type EventType uint8

// The kinds of change.
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
	// CreateRevision is the revision at which the key came to be; 0 for Deleted.
	CreateRevision int64
	// Value is the value after the change; nil for Deleted. The value before it
	// is not told: whoever follows the changes has it.
	Value []byte
	// Seal is nil when the store has just Value.
	Seal *Seal
}

// Batch is what a watch delivers at a time: the events of one or more whole
// revisions in order, or none, and the revision up to which everything has
// been delivered.
type Batch struct {
	Events   []Event
	Revision int64
}

// Historian is a store that may have a quicker way through history than a watch.
type Historian interface {
	// Changes reads the changes of keys that begin with prefix, after one revision and up
	// to another, which the store has reached: whole revisions, until their values take
	// so many bytes. The batch's revision tells how far that is. It is false where there
	// is no such way. *CompactedError is as for a watch.
	Changes(ctx context.Context, prefix string, after, until int64, bytes int) (_ Batch, ok bool, err error)
}

// WriteOptions says more about a write.
type WriteOptions struct {
	// TTL lets the value expire; 0 keeps it. Lifetimes may be rounded up so
	// that writes share a lease.
	TTL time.Duration
	// While are what the write depends on besides: unless all of it is so at the
	// write's own revision, nothing is written, and the error is *PremiseError. What
	// the key itself is found to be is told first.
	While []Premise
}

// Premise says of a key, or with Prefix of each key that begins with it, which
// CreateRevision it has; 0 is that there is none.
type Premise struct {
	Key            string
	Prefix         bool
	CreateRevision int64
}

// Watcher is a running watch. Receive from Batches until it is closed, then
// ask Err why (nil after Stop or the end of the context; *CompactedError when
// the start revision is no longer kept; *ReplacedError, see Resume).
type Watcher interface {
	Batches() <-chan Batch
	Err() error
	// Progress asks for a Batch that carries the current revision, even when
	// nothing changes. It does not wait for the Batch.
	Progress(ctx context.Context) error
	Stop()
}

// Interface is the contract. All methods are safe for concurrent use. Every
// error is one of those in errors.go, or a context error.
type Interface interface {
	// Get reads one key, linearizably when revision is 0, else as it was at
	// that revision. A missing key is ErrNotFound, a value that cannot be read
	// *UnreadableError; lists tell that beside the key. The second result is the
	// store's revision that the answer was read at, also with these errors.
	Get(ctx context.Context, key string, revision int64) (KeyValue, int64, error)
	// List reads the keys that begin with prefix.
	List(ctx context.Context, prefix string, opts ListOptions) (ListResult, error)
	// Create writes a key that must not exist, and returns its revision;
	// otherwise *ExistsError.
	Create(ctx context.Context, key string, value []byte, opts WriteOptions) (int64, error)
	// Update replaces the value if the key's ModRevision is expected, and
	// returns the new one; otherwise *ConflictError with the live value, or
	// ErrNotFound.
	Update(ctx context.Context, key string, value []byte, expected int64, opts WriteOptions) (int64, error)
	// Delete removes the key if its ModRevision is expected, and returns the
	// revision of the deletion; otherwise as Update. While is as in WriteOptions.
	Delete(ctx context.Context, key string, expected int64, while ...Premise) (int64, error)
	// Watch delivers the changes of keys that begin with prefix, after the
	// revision given; one in the future is waited for. It survives outages of
	// the store. What it delivers may be shared and must not be changed.
	Watch(ctx context.Context, prefix string, after int64) (Watcher, error)
	// Resume is Watch from where somebody stands who has followed the changes. It
	// ends with *ReplacedError when the store's history does not go through that
	// place, or, after an outage, through what was delivered since. That is told
	// before anything is delivered, unless history there is compacted.
	Resume(ctx context.Context, prefix string, from Place) (Watcher, error)
	// Confirm is Revision, and looks whether the store's history goes through a
	// place; if not, that is *ReplacedError. A place whose revision is compacted, or
	// without Last, is compared by its revision alone; so is any by a store that
	// cannot be replaced below its users.
	Confirm(ctx context.Context, at Place) (int64, error)
	// Revision is the store's newest revision, read linearizably.
	Revision(ctx context.Context) (int64, error)
	// Compact forgets history before the revision.
	Compact(ctx context.Context, revision int64) error
}
