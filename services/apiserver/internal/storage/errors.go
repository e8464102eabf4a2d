package storage

import (
	"errors"
	"fmt"
)

// Errors without details.
var (
	// ErrNotFound means that the key does not exist at the requested revision.
	ErrNotFound = errors.New("key not found")
	// ErrUnavailable wraps failures to reach the store or to get its response in time. After a
	// write the outcome is unknown.
	ErrUnavailable = errors.New("storage is unavailable")
	// ErrFull wraps ErrUnavailable: the store is out of space and accepts only deletions.
	ErrFull = fmt.Errorf("%w", ErrUnavailable)
	// ErrTooLarge means that the store rejects a value of this size.
	ErrTooLarge = errors.New("value is too large to store")
)

// ExistsError reports that a key to be created exists.
type ExistsError struct{ Key string }

func (e *ExistsError) Error() string { return fmt.Sprintf("key %q exists", e.Key) }

// ConflictError reports that a compare-and-swap found another revision.
type ConflictError struct {
	// Live is the current value of the key.
	Live KeyValue
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("key %q is at revision %d", e.Live.Key, e.Live.ModRevision)
}

// PreconditionError reports that a precondition of a write is not met.
type PreconditionError struct{ Key string }

func (e *PreconditionError) Error() string {
	return fmt.Sprintf("a precondition of the write of key %q is not met", e.Key)
}

// CompactedError reports that a revision is no longer kept.
type CompactedError struct {
	// OldestRevision is the oldest readable revision, or 0 if unknown.
	OldestRevision int64
}

func (e *CompactedError) Error() string {
	return fmt.Sprintf("revision is compacted; the oldest is %d", e.OldestRevision)
}

// FutureError reports that a revision has not been reached.
type FutureError struct{ Current int64 }

func (e *FutureError) Error() string {
	return fmt.Sprintf("revision is in the future; the newest is %d", e.Current)
}

// ReplacedError reports that the store has another history than the one that the reader followed:
// the store was restored from a backup, or another store took its place.
type ReplacedError struct {
	// KnownRevision is the revision up to which the previous history is known.
	KnownRevision int64
	// NewestRevision is the newest revision of the store, or 0 if unknown.
	NewestRevision int64
	// Reason states the difference that proves it.
	Reason string
}

func (e *ReplacedError) Error() string {
	return fmt.Sprintf("the store has another history than the one that was followed up to revision %d: %s",
		e.KnownRevision, e.Reason)
}

// ReopenedError reports that existing values may have become readable or corrupt.
type ReopenedError struct{}

func (e *ReopenedError) Error() string { return "stored values may have become readable or corrupt" }
