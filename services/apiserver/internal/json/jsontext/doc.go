// Package jsontext is the reader of JSON text, and the writer of JSON strings. It works on bytes
// and decodes nothing. Package tape builds on it.
//
//   - Skip, Members and Elements walk the values of a document (skip.go).
//   - Compile and Find read single values by their paths in one pass (set.go), Put replaces one (put.go).
//   - Measure counts the levels and values of a document (measure.go).
//   - String and Number check one token, Compact checks a whole document (token.go, compact.go).
//   - AppendString writes a string as encoding/json does (text.go), Text reads one (set.go).
//
// Only the functions of token.go and compact.go validate. The others accept any text, and return
// ErrMalformed for some invalid JSON. If a field is repeated, the last one counts. The package
// keeps no state.
package jsontext
