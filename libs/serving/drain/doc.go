// Package drain orders the shutdown of a server: Timeline holds its events, and Counter counts the
// requests that it waits for.
//
// Both are safe for concurrent use. Package serving signals the events; other parts wait for them.
package drain
