// Package memory shares out the memory that the server may take for what it
// could do without: the history of watches, kept encodings, older states of
// lists, compressed answers. There is one Budget in a process; each room that
// keeps something takes a Part of it, counts what it keeps, and can be told to
// keep less.
//
// History comes first, up to a bound of its own, because it cannot be made again;
// the caches have what it leaves, up to two thirds of the whole. Within that a
// cache may take what the others do not use; when it gets tight, the one that is
// furthest beyond its share gives way.
//
// The rooms' locks: Add only counts, and may be called under any lock; Settle calls
// Shrink of any part, so it is called without those locks that a Shrink takes.
package memory
