// Package history is what the clients of a robustness test saw and did, as
// plain data: the operations, the reads, the watches and informers, and the
// truth to compare them with. Clients (package traffic) write it, checkers
// (package check) read it; it can be saved as files for people.
//
// Each write of an object puts a mark of its own into the object, so that a
// version is known by its mark wherever it turns up. Times are counted from the
// beginning of the history.
package history
