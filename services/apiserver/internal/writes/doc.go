// Package writes is the way of every write, whoever makes it: clients by
// endpoints, operations such as evictions, and the server itself by package
// loopback. A Request says all that there is to say before the state of the store
// is known; a Result says what stands in the store afterwards. It knows no HTTP.
//
//	Create ─► admission, rules of the kind, what is taken (Allocator, quota) ─► store
//	Update, Patch, Modify ─► swap.go: modify
//	   read the live state: the cache's, which mostly is the newest; the store's where a
//	   webhook may be asked, lest it is asked about what was
//	   ┌► compute what the object becomes ─► change: field ownership, admission, rules
//	   └─ compare-and-swap; on a conflict start again from the live value it returned
//	Delete ─► the same loop: removes the object, marks it and waits, or marks it and
//	          removes it in a second write
//	Alter  ─► the same loop without rules: for operations that were admitted themselves
//
// An error that was found on a cached state counts only after the store confirmed
// that state. What is taken for a write is kept or given back by what became of it;
// when nobody knows that, nothing is given back and nothing is repeated.
package writes
