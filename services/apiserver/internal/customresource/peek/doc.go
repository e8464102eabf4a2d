// Package peek reads single values from a JSON document by their paths, in one
// pass and without decoding the rest. It is for documents that were checked
// when they were stored: what it passes over is only told apart from what
// follows it, and of fields that are given twice the last one counts. It keeps
// no state.
package peek
