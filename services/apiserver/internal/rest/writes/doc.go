// Package writes implements every write: by handlers, by subresources such as evictions,
// and by the server itself through package internalclient. A Request holds all inputs of a write
// that do not depend on the state of the store. A Result holds the state of the store
// afterwards. The package does not depend on HTTP.
//
//	Create ─► admission, rules of the kind, allocations (Allocator, quota) ─► store
//	Update, Patch, UpdateStored ─► swap.go: modifyLive
//	   read the live state: from the cache, which is usually current; from the store if a
//	   webhook may be called, so that the webhook does not see an outdated object
//	   ┌► compute the new object ─► computeChange: field ownership, admission, rules
//	   └─ compare-and-swap; on a conflict start again from the live value it returned
//	Delete ─► the same loop: removes the object, marks it and waits, or marks it and
//	          removes it in a second write
//	UpdateUnvalidated ─► the same loop without rules: for operations that were admitted before
//
// An error computed from a cached state counts only after the store confirms that state. A
// reservation (allocated addresses, charged quota) is committed or rolled back according to the
// result of the write. If the result is unknown, the reservation is not rolled back and the write is
// not repeated.
package writes
