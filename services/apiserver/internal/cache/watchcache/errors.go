package watchcache

import (
	"errors"
	"fmt"
)

// Errors without details.
var (
	// ErrNotReady: the cache is not loaded, or is reloading.
	ErrNotReady = errors.New("watch cache is not loaded")
	// ErrClosed: the watcher was closed by its owner.
	ErrClosed = errors.New("watcher is closed")
	// ErrStopped: the cache ended, or the resource was removed from it.
	ErrStopped = errors.New("watch cache of the resource is stopped")

	errReplaced = errors.New("the store was restored to an older revision")
)

// ExpiredError reports that a revision is older than the kept history.
type ExpiredError struct {
	// Revision is the lost position.
	Revision int64
	// Oldest is the oldest revision from which history is complete.
	Oldest int64
}

func (e *ExpiredError) Error() string {
	return fmt.Sprintf("too old resource version: %d (%d)", e.Revision, e.Oldest)
}

// DuplicateError reports that two resources claim the same name or prefix.
type DuplicateError struct{ Name, Prefix string }

func (e *DuplicateError) Error() string {
	return fmt.Sprintf("resource %q or prefix %q is in the watch cache already", e.Name, e.Prefix)
}
