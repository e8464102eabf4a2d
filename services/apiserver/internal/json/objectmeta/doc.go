// Package objectmeta reads and repairs the metadata of objects that are stored as JSON documents.
//
// Clean removes fields that are not part of object metadata from the input of a client. Repair does
// the same to a stored document, so that typed clients can decode it.
package objectmeta
