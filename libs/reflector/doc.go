// Package reflector follows the objects of one resource of an API server: it lists them in pages,
// watches for changes, resumes a watch that ends, and lists again when the server no longer has its
// place in the history.
//
// Unlike the reflector of client-go it stores nothing, and holds one page of a list at a time. A
// Sink receives each object and keeps what it needs. Store is a Sink that keeps a value for each
// object, and calls a function for each change.
package reflector
