package storage

import (
	"errors"
	"fmt"
)

// Errors without details.
var (
	// ErrNotFound: the key does not exist (at the revision asked for).
	ErrNotFound = errors.New("key not found")
	// ErrUnavailable wraps failures to reach the store or to get its answer in
	// time. After a write the outcome is unknown.
	ErrUnavailable = errors.New("storage is unavailable")
	// ErrFull is an ErrUnavailable: the store has no room, and takes no writes but deletions.
	ErrFull = fmt.Errorf("%w", ErrUnavailable)
	// ErrTooLarge: the store refuses a value of this size.
	ErrTooLarge = errors.New("value is too large to store")
)

// ExistsError tells that a key to be created exists.
type ExistsError struct{ Key string }

func (e *ExistsError) Error() string { return fmt.Sprintf("key %q exists", e.Key) }

// ConflictError tells that a compare-and-swap found another revision.
type ConflictError struct {
	// Live is the value that is stored instead.
	Live KeyValue
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("key %q is at revision %d", e.Live.Key, e.Live.ModRevision)
}

// PremiseError tells that what a write of a key depends on is not so.
type PremiseError struct{ Key string }

func (e *PremiseError) Error() string {
	return fmt.Sprintf("what the write of key %q depends on has changed", e.Key)
}

// CompactedError tells that a revision is no longer kept.
type CompactedError struct {
	// Oldest is the oldest revision that can be read, 0 when unknown.
	Oldest int64
}

func (e *CompactedError) Error() string {
	return fmt.Sprintf("revision is compacted; the oldest is %d", e.Oldest)
}

// FutureError tells that a revision has not been reached.
type FutureError struct{ Current int64 }

func (e *FutureError) Error() string {
	return fmt.Sprintf("revision is in the future; the newest is %d", e.Current)
}

// ReplacedError tells that the store's history is not the one that was followed: the
// store was restored from a backup, or is another one.
type ReplacedError struct {
	// Known is the revision up to which the former history is known.
	Known int64
	// Newest is the store's newest revision, 0 when that is not known.
	Newest int64
	// Why is the proof.
	Why string
}

func (e *ReplacedError) Error() string {
	return fmt.Sprintf("the store has another history than the one that was followed up to revision %d: %s", e.Known, e.Why)
}

// ReopenedError tells that values which the store still has may have become readable or
// unreadable.
type ReopenedError struct{}

func (e *ReopenedError) Error() string { return "stored values may have become readable or unreadable" }
